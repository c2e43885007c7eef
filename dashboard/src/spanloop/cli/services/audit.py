"""``spanloop audit``: who did what in the dashboard."""

import json
from typing import Annotated

import typer

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory


def audit(
    limit: Annotated[int, typer.Option(min=1, help="Only the last so many actions.")] = 50,
    user: Annotated[str | None, typer.Option(help="Only actions of this user.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """List logins and actions of the dashboard, oldest first: when, who, what, to what, with which result.

    Example: `spanloop audit --user ann`
    """
    from spanloop.foundation.keys.audit import AuditLog

    entries = [entry for entry in AuditLog(data_directory(data_dir)).read() if user is None or entry.user == user]
    entries = entries[-limit:]
    if as_json:
        for entry in entries:
            out.print(json.dumps(entry._asdict(), ensure_ascii=False), markup=False, soft_wrap=True)
        return
    if not entries:
        err.print("no action yet")
        return
    print_table(
        ("at", "user", "role", "address", "action", "object", "result", "detail"),
        (
            (each.at, each.user, each.role, each.address, each.action, each.object, each.result, each.detail)
            for each in entries
        ),
    )
