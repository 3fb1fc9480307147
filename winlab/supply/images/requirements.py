"""Checks that Windows can be installed from the user's media, before anything is touched."""

from __future__ import annotations

import zipfile
from pathlib import Path

from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.cni import compatible
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.plan.stock import Stock
from winlab.design.render import answer as windows_files
from winlab.errors import NotFoundError, UsageError
from winlab.supply.images import expansion, windows_media
from winlab.supply.media import drivers, extras, inspection
from winlab.supply.media.inspection import Inspection
from winlab.supply.media.wim import WimImage

FAMILIES = {"ServerStandard": "standard", "ServerDatacenter": "datacenter"}  # by EDITIONID without "Eval"


def check(plan: Plan, stock: Stock, *, consent: bool = False, joins: bool = True, offline: bool = False) -> None:
    """Check that all media are available and answer all of Setup's questions.

    :param consent: the terms of Microsoft's evaluation media were accepted, so that they may be fetched.
    :param offline: everything comes from a bundle: nothing is fetched, and Windows must not need the internet either.
    :param joins: the machines will be nodes of a cluster, which not every build of Windows can be.
    :raises WinlabError: a medium is missing or unsuitable; nothing was touched.
    """
    checked = []
    for node in plan.windows_nodes():
        recipe, windows = recipes.get(node.image), node.windows
        about = (node.image, windows.model_copy(update={"computer_name": ""}))
        if about in checked:
            continue
        checked.append(about)
        medium = stock.require(windows.medium) if windows.own_medium else windows_media.at_hand(node, stock)
        if medium is not None:
            image = check_medium(node, medium)
            if joins:
                check_build(plan, node, image)
        elif offline or not (consent and recipe.evaluations):
            require_source(recipe, offline=offline)
        _check_drivers(node, stock, offline=offline)
        if windows.openssh is not None and not zipfile.is_zipfile(stock.require(windows.openssh)):
            raise UsageError(
                f"'{stock.require(windows.openssh)}' is not a ZIP file that can be read.",
                cure="Give OpenSSH-Win64.zip as the Win32-OpenSSH project offers it.",
            )
        extras.stage(node, stock)
        windows_files.answer_xml(node, "", expansion.expand)
    if offline:
        _check_offline(plan)


def _check_drivers(node: WindowsNode, stock: Stock, *, offline: bool) -> None:
    """Check the virtio drivers, if they are on this host.

    :raises UsageError: they are not for this Windows, or there is a bus without drivers for it.
    :raises NotFoundError: they would have to be fetched, but downloads are forbidden.
    """
    file = windows_media.drivers_file(node.windows, stock)
    if file is None:
        return
    if file.exists():
        drivers.stage(file, node.windows.release, node.bus, node.nic)
    elif offline:
        raise NotFoundError(
            "The virtio drivers are neither in the cache nor in the bundle.",
            why="Nothing is fetched with --bundle.",
            cure="Give the virtio-win ISO with --set workers.drivers=PATH; or do without: --set workers.bus=sata.",
        )


def _check_offline(plan: Plan) -> None:
    """Check that Windows will need nothing from the internet during installation.

    :raises UsageError: it will; nothing was touched.
    """
    for node in plan.windows_nodes():
        windows, recipe = node.windows, recipes.get(node.image)
        if recipe.build is not None:
            continue
        if windows.openssh is None and windows.release in ("2019", "2022"):
            raise UsageError(
                f"Windows Server {windows.release} gets OpenSSH from the internet, which --bundle rules out.",
                cure="Give OpenSSH-Win64.zip, as the Win32-OpenSSH project offers it, with --set workers.openssh=PATH; "
                "or leave out --bundle.",
            )
        if windows.updates:
            raise UsageError(
                "Windows' updates come from the internet, which --bundle rules out.",
                cure="Leave out workers.updates, or --bundle.",
            )


def require_source(recipe: Recipe, *, offline: bool = False) -> None:
    """Check that the image is available without a medium of the user's own.

    :raises NotFoundError: it isn't; the message names alternatives.
    """
    if recipe.download is None and recipe.build is None and offline:
        raise NotFoundError(
            f"No media were found for '{recipe.name}', and a bundle has none of Microsoft's.",
            why="'winlab bundle show' shows the hash of the medium that it was made with.",
            cure=f"Get that ISO, and give it with --iso PATH or 'winlab image add {recipe.name} --iso PATH'.",
        )
    if recipe.download is None and recipe.build is None:
        raise NotFoundError(
            f"No media were found for '{recipe.name}'.",
            why="winlab does not include Windows.",
            cure=f"Fetch Microsoft's evaluation with 'winlab image pull {recipe.name}' (or with --accept-eula of this "
            "command); or give your own ISO with --iso PATH; or try everything without Windows with --rehearse.",
        )


def check_build(plan: Plan, node: WindowsNode, image: WimImage) -> None:
    """Check that the build of Windows on a medium works with the cluster's versions and network.

    Media that don't state it, those that will be updated, and those for machines beside the cluster are accepted.

    :raises UsageError: it doesn't; the message names what does.
    """
    windows = node.windows
    if node.is_member and not windows.updates and image.build is not None and image.revision is not None:
        build = f"{image.build}.{image.revision}"
        compatible.check(plan.cluster.versions, windows.release, build, plan.cluster.profile)


def check_medium(node: WindowsNode, medium: Path) -> WimImage:
    """Check that Setup will find all answers on this medium: the image, its language, a product key or none.

    :returns: the image that will be installed.
    :raises UsageError: it won't; the message says what to change.
    """
    report = inspection.inspect(medium)
    report.require_usable()
    if report.has("/autounattend.xml"):
        raise UsageError(
            f"The medium '{medium}' carries an answer file of its own.",
            why="Windows Setup takes the first Autounattend.xml that it finds, which may be either.",
            cure="Use Microsoft's own ISO; put your own answers into workers.template.",
        )
    chosen = report.image(node.windows.image_name)
    if chosen is None:
        raise UsageError(
            f"The medium '{medium}' has no image named '{node.windows.image_name}'.",
            why="It has: " + ", ".join(f"'{image.name}'" for image in report.images),
            cure="Choose with --os and --set workers.edition what the medium has, name one of these with --set "
            "workers.image=..., or use another ISO.",
        )
    _check_key(node, medium, chosen, report)
    languages = [one for one in (chosen.language, *chosen.languages) if one]
    if languages and node.windows.language.lower() not in [one.lower() for one in languages]:
        raise UsageError(
            f"The language of '{medium}' is {languages[0]}, but workers.language is {node.windows.language}.",
            cure=f"Give --set workers.language={languages[0]}, or another medium. Locale and keyboard "
            "can be chosen freely with workers.locale and workers.keyboard.",
        )
    return chosen


def with_key(node: WindowsNode, medium: Path) -> WindowsNode:
    """The node with the product key for Setup: the user's own, the medium's, or Microsoft's public client setup key.

    The medium's is in its PID.txt; volume media get the public one. Beside an answer file Setup ignores the EI.cfg that
    makes a medium one of volume licences
    (https://learn.microsoft.com/windows-hardware/manufacture/desktop/windows-setup-edition-configuration-and-product-id-files--eicfg-and-pidtxt).
    """
    if node.windows.product_key is not None:
        return node
    report = inspection.inspect(medium)
    chosen = report.image(node.windows.image_name)
    if chosen is None or chosen.is_evaluation:
        return node
    if report.product_key is not None:
        return node.changed(product_key=report.product_key)
    if report.channel != "volume":
        return node
    key = recipes.get(node.image).setup_keys.get(FAMILIES.get(chosen.edition, ""))
    return node.changed(product_key=key)


def _check_key(node: WindowsNode, medium: Path, chosen: WimImage, report: Inspection) -> None:
    """Check the product key: on an error Setup would wait for an answer on the screen.

    :raises UsageError: the key does not fit the medium.
    """
    recipe = recipes.get(node.image)
    key = node.windows.product_key or (None if chosen.is_evaluation else report.product_key)
    family = FAMILIES.get(chosen.edition.removesuffix("Eval"))
    published = recipe.setup_keys.get(family) if family else None
    if chosen.is_evaluation:
        if key is not None:
            raise UsageError(
                f"'{medium}' is an evaluation, which takes no product key.",
                cure="Leave workers.product_key out, or use volume licence media.",
            )
    elif key is None and report.channel != "volume":
        hint = f" Microsoft's public client setup key for this edition, for use with a KMS, is {published}."
        raise UsageError(
            f"'{medium}' is not an evaluation: Setup asks for a product key.",
            why=f"Its image '{chosen.name}' is of the edition {chosen.edition or 'unknown'}.",
            cure=f"Give one with --set workers.product_key=....{hint if published else ''}",
        )
    others = {public: name for name, public in recipe.setup_keys.items() if name != family}
    if key in others:
        raise UsageError(
            f"The product key is for {others[key]}, and '{chosen.name}' is another edition.",
            why="Setup offers no image at all where the key does not fit.",
            cure=f"Choose the edition with --set workers.edition={others[key]}-core, or give another key.",
        )
