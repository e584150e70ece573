"""Django admin: the state of the clusters, to read: what the worker checked, and what does not agree with the rows."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from gpu import enqueue
from gpu.admin_models import ReadOnlyAdmin
from gpu.message_json import from_json
from gpu.models import ClusterReport
from gpu.wording import render


@admin.register(ClusterReport)
class ClusterReportAdmin(ReadOnlyAdmin, admin.ModelAdmin[ClusterReport]):
    """One row a cluster; the worker writes it every few minutes, or when asked to look again."""

    list_display = ["cluster", "well", "checked_at", "well_at", "compared_at", "disagreement_count"]
    fields = [
        "cluster",
        "well",
        "checked_at",
        "well_at",
        "check_table",
        "compared_at",
        "disagreement_count",
        "disagreement_table",
    ]
    readonly_fields = ["check_table", "disagreement_table"]
    list_select_related = ["cluster"]
    actions = ["look_again"]

    @admin.action(description=_("Look again"), permissions=["view"])
    def look_again(self, request: HttpRequest, queryset: QuerySet[ClusterReport]) -> None:
        """Ask the worker to check and compare anew."""
        for report in queryset:
            enqueue.look_at_cluster(report.cluster_id)
        self.message_user(request, _t("The worker looks again; load the page in a few seconds."))

    @admin.display(description=_("what was checked"))
    def check_table(self, obj: ClusterReport) -> SafeString:
        """Each line with its mend, what is wrong first."""
        lines = sorted(obj.lines, key=lambda line: (line["ok"] is True, line["ok"] is None))
        signs = {True: _t("ok"), False: _t("NOT OK"), None: _t("open")}
        return format_html(
            "<table>{}</table>",
            format_html_join(
                "",
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                (
                    (
                        signs[line["ok"]],
                        render(from_json(line["title"])),
                        render(from_json(line["mend"])) if line["mend"] else "",
                    )
                    for line in lines
                ),
            ),
        )

    @admin.display(description=_("what does not agree"))
    def disagreement_table(self, obj: ClusterReport) -> SafeString:
        """Each with its proposal. Nothing is done by itself."""
        head = format_html(
            "<tr><th>{}</th><th>{}</th><th>{}</th><th>{}</th></tr>",
            _t("namespace"),
            _t("object"),
            _t("what does not agree"),
            _t("proposal"),
        )
        rows = format_html_join(
            "",
            "<tr><td>{}</td><td>{} {}</td><td>{}</td><td>{}</td></tr>",
            (
                (
                    item["namespace"],
                    item["kind"],
                    item["name"],
                    render(from_json(item["sentence"])),
                    render(from_json(item["proposal"])),
                )
                for item in obj.disagreements
            ),
        )
        return format_html("<table>{}{}</table>", head, rows)
