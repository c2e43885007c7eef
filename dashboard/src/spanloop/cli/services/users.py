"""``spanloop users``: create, list and remove the dashboard's users, and set their passwords."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..console import err, print_table
from ..options import DataDirOption, data_directory

app = typer.Typer(help="Create, list and remove users of the dashboard.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="The user's name.")]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(help="A file whose first line is the password, or - for standard input; without it you are asked."),
]


@app.command()
def create(
    name: NameArgument,
    role: Annotated[str, typer.Option(help="viewer reads every page; operator starts jobs and serves models too.")],
    password_file: PasswordFileOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Create a user. After the first one, the dashboard asks everybody to log in.

    Example: `spanloop users create ann --role operator`
    """
    from spanloop.foundation.errors import ConfigurationError
    from spanloop.foundation.keys.users import Role, Users

    try:
        checked_role = Role(role)
    except ValueError as error:
        raise ConfigurationError(f"{error}.", next_step=f"A role is one of {', '.join(Role)}.") from error
    users = Users(data_directory(data_dir))
    is_first = not users.is_required
    users.create(name, checked_role, _read_password(password_file))
    err.print(f"{name} may log in as {checked_role}", markup=False)
    if is_first:
        err.print("from now on the dashboard of this data directory asks everybody to log in")


@app.command("list")
def list_users(data_dir: DataDirOption = None) -> None:
    """List all users with their roles.

    Example: `spanloop users list`
    """
    from spanloop.foundation.keys.users import Users

    users = Users(data_directory(data_dir)).list()
    if not users:
        err.print("no users: the dashboard asks nobody to log in; it listens on this machine only")
        return
    print_table(
        ("user", "role", "made", "password set"),
        ((user.name, user.role.value, user.created_at, user.changed_at) for user in users),
    )


@app.command()
def password(name: NameArgument, password_file: PasswordFileOption = None, data_dir: DataDirOption = None) -> None:
    """Set a user's password; the user's sessions end.

    Example: `spanloop users password ann`
    """
    from spanloop.foundation.keys.users import Users

    Users(data_directory(data_dir)).set_password(name, _read_password(password_file))
    err.print(f"{name} has a new password", markup=False)


@app.command()
def remove(name: NameArgument, data_dir: DataDirOption = None) -> None:
    """Remove a user; the user's sessions end.

    Example: `spanloop users remove ann`
    """
    from spanloop.foundation.keys.users import Users

    Users(data_directory(data_dir)).remove(name)
    err.print(f"{name} is removed", markup=False)


def _read_password(file: Path | None) -> str:
    """Read a password; it is never an argument, which every user of the machine could see."""
    from spanloop.foundation.errors import ConfigurationError

    if file is None:
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    try:
        text = sys.stdin.readline() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The password cannot be read from {file}: {error}.") from error
    return text.partition("\n")[0].removesuffix("\r")
