"""Tags and filters of the pages: icons, times, bars. They draw; they decide nothing."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from decimal import Decimal
from functools import cache
from urllib.parse import urlencode

from django import template
from django.template import Context, Node, NodeList, TemplateSyntaxError
from django.template.base import Parser, Token
from django.templatetags.static import static
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from gpu import wording
from gpu.models import Package
from gpu.quantities import parse

register = template.Library()

HOURS_A_MONTH = 730

THEMES = ("light", "dark")


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """Draw the icon `name` of the sprite, hidden from screen readers; a word stands beside it."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>',
        extra,
        _sprite(),
        name,
    )


@cache
def _sprite() -> str:
    """The address of the sprite, looked up once: a page draws a hundred icons."""
    return static("vendor/tabler-icons/sprite.svg")


@register.simple_tag(takes_context=True)
def theme_attribute(context: Context) -> SafeString:
    """Return the attribute of the chosen theme; nothing when the reader follows the system."""
    request = context.get("request")
    chosen = request.COOKIES.get("theme", "") if request is not None else ""
    return format_html('data-bs-theme="{}"', chosen) if chosen in THEMES else SafeString("")


@register.filter
def ago(moment: datetime | None) -> str:
    """Say how long ago `moment` was, in the largest unit that fits."""
    if moment is None:
        return _("unknown")
    seconds = max(0, int((timezone.now() - moment).total_seconds()))
    if seconds < 60:
        return ngettext("%(n)d second ago", "%(n)d seconds ago", seconds) % {"n": seconds}
    if seconds < 3600:
        minutes = seconds // 60
        return ngettext("%(n)d minute ago", "%(n)d minutes ago", minutes) % {"n": minutes}
    if seconds < 172_800:
        hours = seconds // 3600
        return ngettext("%(n)d hour ago", "%(n)d hours ago", hours) % {"n": hours}
    days = seconds // 86_400
    return ngettext("%(n)d day ago", "%(n)d days ago", days) % {"n": days}


@register.filter
def absolute(moment: datetime) -> str:
    """Write `moment` with date, time to the second and zone."""
    local = timezone.localtime(moment)
    return f"{date_format(local, 'DATE_FORMAT')}, {local:%H:%M:%S} {local:%Z}"


@register.simple_tag
def since(moment: datetime | None) -> SafeString | str:
    """Write how long ago `moment` was, the absolute time on hover; the page keeps it counting."""
    if moment is None:
        return _("unknown")
    return format_html(
        '<time datetime="{}" title="{}" data-ago>{}</time>', moment.isoformat(), absolute(moment), ago(moment)
    )


@register.simple_tag
def at(moment: datetime | None) -> SafeString | str:
    """Write `moment` as an absolute time, the date only where it is not today; date and zone on hover."""
    if moment is None:
        return _("unknown")
    local = timezone.localtime(moment)
    day = "" if local.date() == timezone.localdate() else f"{date_format(local, 'SHORT_DATE_FORMAT')} "
    return format_html(
        '<time datetime="{}" title="{}">{}{}</time>',
        moment.isoformat(),
        absolute(moment),
        day,
        f"{local:%H:%M:%S}",
    )


@register.filter
def duration(seconds: float | None) -> str:
    """Write a short span: "4 s", "2 min 5 s", "3 h 12 min"."""
    if seconds is None:
        return ""
    if seconds < 1:
        return _("< 1 s")
    whole = int(seconds)
    if whole < 60:
        return _("%(s)d s") % {"s": whole}
    if whole < 3600:
        return _("%(m)d min %(s)d s") % {"m": whole // 60, "s": whole % 60}
    return _("%(h)d h %(m)d min") % {"h": whole // 3600, "m": whole % 3600 // 60}


@register.filter
def mib(amount: int) -> str:
    """Write MiB in the unit that fits: 8192 is "8 GiB"."""
    return wording.memory(amount * 1024 * 1024)


@register.filter(name="bytes")
def in_bytes(amount: int | None) -> str:
    """Write bytes in the unit that fits: 2019377376 is "1.88 GiB"."""
    return _("unknown") if amount is None else wording.memory(amount)


@register.filter
def price(package: Package) -> str:
    """Write a package's price of an hour."""
    return wording.money(package.price_per_hour, package.currency)


@register.filter
def price_month(package: Package) -> str:
    """Write a package's price of a month of 730 hours."""
    return wording.money(package.price_per_hour * HOURS_A_MONTH, package.currency)


@register.filter
def quantity(text: str, kind: str) -> str:
    """Write a Kubernetes quantity for the reader; `kind` is "cpu" or "memory"."""
    value = parse(text)
    return wording.cpu(value) if kind == "cpu" else wording.memory(value)


@register.simple_tag
def cells(total: int, used: int, waiting: int = 0, new: int = 0) -> SafeString:
    """Draw `total` slices as a row of cells: used, waiting, newly asked for, free. Words stand beside it."""
    kinds = ["used"] * used + ["waiting"] * waiting + ["new"] * new
    kinds += ["free"] * (total - len(kinds))
    inner = format_html_join("", '<span class="{}"></span>', ((kind,) for kind in kinds))
    return format_html('<div class="cells" aria-hidden="true">{}</div>', inner)


@register.simple_tag
def bar(used: Decimal | None, hard: Decimal | None, new: Decimal | int = 0) -> SafeString:
    """Draw used (and newly asked for) of hard; empty when either is unknown. Words stand beside it."""
    if used is None or not hard:
        return SafeString('<svg class="bar" aria-hidden="true"></svg>')
    before = min(Decimal(100), used * 100 / hard)
    after = min(Decimal(100), (used + new) * 100 / hard)
    kind = "over" if used + new > hard else "new"
    return format_html(
        '<svg class="bar" aria-hidden="true" preserveAspectRatio="none">'
        '<rect class="{}" width="{}%" height="100%"/>'
        '<rect class="used" width="{}%" height="100%"/></svg>',
        kind,
        f"{after:.1f}",
        f"{before:.1f}",
    )


@register.filter
def short_image(image: str) -> str:
    """Write an image with the first 12 digits of its digest."""
    name, at_sign, digest = image.partition("@")
    return f"{name}@{digest[:19]}…" if at_sign else name


@register.simple_tag(takes_context=True)
def query(context: Context, **changes: object) -> str:
    """Return the page's query string with `changes` made; an empty value takes the key away."""
    pairs = context["request"].GET.copy()
    pairs.pop("page", None)
    for key, value in changes.items():
        pairs.pop(key, None)
        if value not in ("", None):
            pairs[key] = str(value)
    return f"?{urlencode(list(pairs.items()))}"


_RUNNING_TIME = re.compile(r"(<time [^>]*data-ago>)[^<]*")


class LivePart(Node):
    """A part of a page that replaces itself when it has changed (see gpu.views.shell.show)."""

    def __init__(self, name: str, nodelist: NodeList) -> None:
        self.name = name
        self.nodelist = nodelist

    def render(self, context: Context) -> SafeString:
        """Render the part with its version: a digest of its text, in which times that run do not count."""
        inner = self.nodelist.render(context)
        version = hashlib.sha256(_RUNNING_TIME.sub(r"\1", inner).encode()).hexdigest()[:16]
        parts = context.get("live_parts")
        swap = SafeString("" if parts is None else ' hx-swap-oob="true"')
        html = format_html('<div id="{}" data-version="{}"{}>{}</div>', self.name, version, swap, inner)
        if parts is not None:
            parts[self.name] = (version, html)
        return html


@register.tag
def live(parser: Parser, token: Token) -> LivePart:
    """Mark a live part: `{% live "state" %}...{% endlive %}`; the name is its id in the page."""
    pieces = token.split_contents()
    if len(pieces) != 2:
        raise TemplateSyntaxError("live takes one name")
    nodelist = parser.parse(("endlive",))
    parser.delete_first_token()
    return LivePart(pieces[1].strip("'\""), nodelist)
