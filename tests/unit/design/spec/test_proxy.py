"""The proxy of a spec: which addresses and exceptions it takes, and that no message has a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab.design import spec
from winlab.design.spec.proxy import Proxy, without_login
from winlab.errors import UsageError

ADDRESS = "http://proxy.example:3128"
SECRET = "http://me:SECRET@proxy.example:3128"


def load(*changes: str) -> Proxy:
    return spec.load("1-1-1", [f"network.proxy.{change}" for change in changes]).network.proxy


def test_there_is_none_by_default() -> None:
    assert load().secure is None
    assert load() == Proxy()


@pytest.mark.parametrize(
    "address",
    [
        ADDRESS,
        SECRET,
        "http://me@192.0.2.1:80",
        "http://m%40e:p%23w%2F%3A@proxy:8080",
    ],
)
def test_an_address_counts_for_http_and_https(address: str) -> None:
    made = load(f"http={address}/")
    assert (made.http, made.secure) == (address, address)


def test_https_may_have_its_own() -> None:
    made = load(f"http={ADDRESS}", "https=http://other.example:8080")
    assert (made.http, made.secure) == (ADDRESS, "http://other.example:8080")
    alone = load("https=http://other.example:8080")
    assert (alone.http, alone.secure) == (None, "http://other.example:8080")
    assert made.hosts == ("proxy.example", "other.example")


@pytest.mark.parametrize(
    "address",
    [
        "proxy.example:3128",
        "http://proxy.example",
        "http://proxy.example:0",
        "http://proxy.example:99999",
        "https://SECRET@proxy.example:3128",
        "socks5://SECRET@proxy.example:1080",
        "http://me:SE/CRET@proxy.example:3128",
        "http://me:SE'CRET@proxy.example:3128",
        'http://me:SE"CRET@proxy.example:3128',
        "http://me:SE$CRET@proxy.example:3128",
        "http://me:SECRET%zz@proxy.example:3128",
        "http://me:SECRET@proxy.example:3128/path",
        "http://me:SECRET@:3128",
    ],
)
def test_other_addresses_are_refused_without_repeating_them(address: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(f"http={address}")
    assert "http://proxy.example:3128, with its port" in caught.value.why
    assert "SE" not in f"{caught.value.what}{caught.value.why}{caught.value.cure}"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "0.0.0.0"])
def test_the_node_itself_can_not_be_its_proxy(host: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(f"http=http://me:SECRET@{host}:3128")
    assert f"{host} would be the node itself" in caught.value.why
    assert "SECRET" not in caught.value.why


def test_an_address_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proxy").write_text(f"{SECRET}\n")
    monkeypatch.chdir(tmp_path)
    assert load("http=@proxy").http == SECRET
    given = spec.load("1-1-1", environment={"WINLAB_NETWORK_PROXY_HTTP": "@proxy"})
    assert given.network.proxy.http == SECRET


def test_exceptions_have_one_form() -> None:
    entries = "corp.example,.a.example,*.b.example,10.1.2.3/8,192.0.2.7,fd00::/8,::1,host:8443,192.0.2.7:80"
    made = load(f"http={ADDRESS}", f"no_proxy=[{','.join(repr(one) for one in entries.split(','))}]")
    expected = "corp.example,.a.example,*.b.example,10.0.0.0/8,192.0.2.7,fd00::/8,::1,host:8443,192.0.2.7:80"
    assert made.no_proxy == tuple(expected.split(","))


@pytest.mark.parametrize("entry", ["*", "", "a b", "a,b", "10.0.0.0/99", "name/8", "http://a.example", "a'b"])
def test_other_exceptions_are_refused(entry: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(f"http={ADDRESS}", f'no_proxy=["{entry}"]')
    assert f"'{entry}' is not a name, an address or a network" in caught.value.why


def test_a_shown_address_has_no_name_and_password() -> None:
    assert without_login(SECRET) == "http://<secret>@proxy.example:3128"
    assert without_login(ADDRESS) == ADDRESS
    assert "SECRET" not in str(load(f"http={SECRET}").without_logins())
