"""The HTML of login and logout. It loads nothing, runs no script, and may not be framed."""

import base64
import hashlib
from html import escape
from typing import Final

_STYLE: Final = """
:root{color-scheme:light dark;--page:#f6f8fb;--card:#fff;--text:#1f2937;--dim:#6b7280;--line:#d9dfe8;--blue:#2563eb;--red:#b91c1c;--pink:#fee2e2}
@media (prefers-color-scheme:dark){:root{--page:#0e1117;--card:#161b24;--text:#e5e7eb;--dim:#9ca3af;--line:#2c3442;--blue:#3b82f6;--red:#fecaca;--pink:#4c1d1d}}
*{box-sizing:border-box}
body{margin:0;min-height:100vh;display:grid;place-items:center;padding:1.5rem;background:var(--page);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{width:100%;max-width:23rem;padding:2.2rem 2rem;background:var(--card);border:1px solid var(--line);border-radius:14px;box-shadow:0 8px 30px rgb(0 0 0/.07)}
header{display:flex;align-items:center;gap:.6rem;margin-bottom:1.4rem}
h1{margin:0;font-size:1.35rem;font-weight:650;letter-spacing:-.01em}
p{margin:0 0 1.2rem;color:var(--dim)}
label{display:block;margin-bottom:1rem;font-size:.9rem;font-weight:550}
input{display:block;width:100%;margin-top:.3rem;padding:.6rem .75rem;border:1px solid var(--line);border-radius:8px;background:var(--page);color:inherit;font:inherit;font-weight:400}
input:focus,button:focus{outline:2px solid var(--blue);outline-offset:1px}
button{width:100%;margin-top:.4rem;padding:.65rem;border:0;border-radius:8px;background:var(--blue);color:#fff;font:inherit;font-weight:600;cursor:pointer}
.error{margin-bottom:1.2rem;padding:.6rem .75rem;border-radius:8px;background:var(--pink);color:var(--red);font-size:.92rem}
a{color:var(--blue)}
.back{margin:1.1rem 0 0;text-align:center;font-size:.9rem}
"""  # noqa: E501 (CSS)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_ICON: Final = (
    '<svg width="30" height="30" viewBox="0 0 24 24" fill="none" stroke="#3b82f6" stroke-width="3" aria-hidden="true">'
    '<circle cx="7.5" cy="12" r="5"/><circle cx="16.5" cy="12" r="5"/></svg>'
)
HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every response that has one of these pages."""


def login_page(*, token: str, next_path: str, name: str = "", error: str = "") -> str:
    """Return the login form.

    Args:
        token: The form's hidden field.
        next_path: Where to go afterwards.
        name: What the user typed before.
        error: Why the last attempt failed.
    """
    focus_name, focus_password = ("", " autofocus") if name else (" autofocus", "")
    return _page(
        "Log in",
        f"""<header>{_ICON}<h1>spanloop</h1></header>
{_error(error)}<form method="post" action="/login">
<input type="hidden" name="token" value="{escape(token)}">
<input type="hidden" name="next" value="{escape(next_path)}">
<label>User<input name="user" value="{escape(name)}" autocomplete="username" autocapitalize="none" spellcheck="false" \
required maxlength="64"{focus_name}></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required \
maxlength="1024"{focus_password}></label>
<button>Log in</button>
</form>""",
    )


def logout_page(*, token: str, name: str, role: str) -> str:
    """Return the form that ends a session."""
    return _page(
        "Log out",
        f"""<header>{_ICON}<h1>spanloop</h1></header>
<p>You are logged in as <strong>{escape(name)}</strong>, {escape(role)}.</p>
<form method="post" action="/logout"><input type="hidden" name="token" value="{escape(token)}">
<button autofocus>Log out</button></form>
<p class="back"><a href="/">Back to the pages</a></p>""",
    )


def message_page(message: str) -> str:
    """Return a page that says why there is none."""
    sentence = f"{message[:1].upper()}{message[1:]}"
    return _page("spanloop", f"<header>{_ICON}<h1>spanloop</h1></header>\n{_error(sentence)}")


def _error(text: str) -> str:
    return f'<div class="error" role="alert">{escape(text)}</div>\n' if text else ""


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>'
        f'{escape(title)} · spanloop</title><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{_STYLE}</style></head>\n'
        f"<body><main>\n{body}\n</main></body>\n</html>\n"
    )
