"""Why sysprep does not generalize a Windows, or what it generalized does not live."""

from __future__ import annotations

from winlab.design.cause.model import Cause, Clue, Effect

CAUSES = (
    Cause(
        "app-of-one-user",
        Effect.ENDS,
        (Clue("0x80073cf2"), Clue("was installed for a user, but not provisioned for all users")),
        "An app is installed for one user only, and sysprep refuses that.",
        "On Desktop editions apps such as Edge update themselves for the user who is logged on.",
        "Remove it with a script in workers.scripts, or choose a Core edition: workers.edition.",
        "Microsoft: sysprep fails to remove or update Store apps; antifob/incus-windows#28",
    ),
    Cause(
        "defender-for-endpoint",
        Effect.ENDS,
        (Clue("senseguid"),),
        "Defender for Endpoint blocks sysprep.",
        "It protects registry values that sysprep removes.",
        "Remove it with a script in workers.scripts.",
        "actions/runner-images#14499",
    ),
    Cause(
        "sysprep-library",
        Effect.ENDS,
        (Clue("launchdll", r"Failure occurred while executing '[^']{1,200}', returned error code 0x2\b"),),
        "sysprep calls a library that is not there, or that does not find its files.",
        "0x2 is: file not found. Language packs, half-done updates and removed features were reported before.",
        "Leave out what scripts in workers.scripts add to Windows or remove from it, and build the image again.",
        "MicrosoftDocs/azure-docs#43893, #49145, #80346: 'DscCore.dll,SysPrep_Cleanup'",
    ),
    Cause(
        "restart-pending",
        Effect.ENDS,
        (Clue("rebootpending"),),
        "A restart of Windows is pending, and sysprep refuses to run.",
        "An update or a feature waits for it.",
        "Run the same command again: it restarts Windows before it runs sysprep again.",
        "actions/runner-images#7103",
    ),
    Cause(
        "generalized-too-often",
        Effect.ENDS,
        (Clue("0x8007001f"), Clue("0xc004d307")),
        "This Windows was generalized too often.",
        "Each time uses up one of its few rearms.",
        "Use a fresh medium.",
        "Microsoft: sysprep's limits; SL_E_REARM",
    ),
    Cause(
        "evaluation-expired",
        Effect.ENDS,
        (
            Clue("0xc004f009"),
            Clue("evaluation period"),
            Clue("license period for this installation of windows has expired"),
            Clue("wlms.exe", r"initiated the shutdown"),
        ),
        "The evaluation has expired.",
        "Windows then shuts down every hour.",
        "Build a new golden image: destroy the labs that are based on it, 'winlab image rm KEY', then create.",
        "Microsoft: SL_E_GRACE_TIME_EXPIRED; the terms of evaluation media",
    ),
    Cause(
        "setup-incomplete",
        Effect.ENDS,
        (Clue("setup is not complete: its state is"), Clue("image_state_undeployable")),
        "Windows Setup never finished, so Windows can't be generalized.",
        "A pass of Setup failed or still runs; only IMAGE_STATE_COMPLETE can be generalized.",
        r"Look for errors in C:\Windows\Panther\UnattendGC\setuperr.log; destroy the builder's lab, and create again.",
        "Microsoft: Windows Setup states (ImageState)",
    ),
    Cause(
        "sysprep-without-effect",
        Effect.SILENT,
        (Clue("the state of windows is image_state_"),),
        "sysprep ended, but Windows is not generalized; its error log shows no known cause.",
        "One of sysprep's own checks refused; its activity log names it.",
        r"Look at C:\Windows\System32\Sysprep\Panther\setupact.log of the evidence, at its last entries.",
        "Microsoft: Windows Setup states (ImageState)",
    ),
)
