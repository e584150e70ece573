"""The order form: text as a person types it, to a WorkloadSpec and back. What is right or wrong is gpu.contract's."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from django import forms
from django.core import signing
from django.db.models import QuerySet
from django.utils.crypto import get_random_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gpu import matrix, templates_catalogue, wording
from gpu.contract import Finding
from gpu.manifest_spec import EnvVar, VolumeSpec, WorkloadSpec
from gpu.messages import Text
from gpu.models import Package
from gpu.names import MAX_DISPLAY_LENGTH
from gpu.templates_catalogue import Setting, SettingRefused, Template
from tenants.models import User

KEY_SALT = "gpu.order"


def new_operation_key(user: User) -> str:
    """Return a signed operation key, bound to `user`: one form shown is at most one order (case C-17)."""
    return signing.dumps({"user": user.pk, "key": get_random_string(32)}, salt=KEY_SALT)


def words(line: str) -> tuple[str, ...]:
    """Split a command line as a shell does; raises ValidationError for an open quotation mark."""
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise forms.ValidationError(_("A quotation mark is not closed.")) from error


def variables(text: str) -> tuple[EnvVar, ...]:
    """Read NAME=value lines; empty lines and lines that begin with # count for nothing."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise forms.ValidationError(_("Line %(number)d: write NAME=value.") % {"number": number})
        found.append(EnvVar(name.strip(), value))
    return tuple(found)


def setting_name(template: Template, setting: Setting) -> str:
    """Return the name of the field of a template's setting."""
    return f"set-{template.code}-{setting.code}"


def workload_fields(workload: WorkloadSpec, template: Template) -> dict[str, object]:
    """Return the form's values for `workload`, the template's settings left out of environment and arguments."""
    plain = workload
    for setting in template.settings:
        plain = templates_catalogue.base.put(plain, setting, "")
    volume = workload.volume
    fields: dict[str, object] = {
        "image": workload.image,
        "command": shlex.join(workload.command),
        "args": shlex.join(plain.args),
        "env": "\n".join(f"{item.name}={item.value}" for item in plain.env),
        "port": "" if workload.port is None else workload.port,
        "cpu_request": workload.cpu_request,
        "cpu_limit": workload.cpu_limit,
        "memory_request": workload.memory_request,
        "memory_limit": workload.memory_limit,
        "volume": volume is not None,
        "volume_size": volume.size if volume else "20Gi",
        "volume_path": volume.mount_path if volume else "/data",
    }
    values = template.values_of(workload)
    return fields | {setting_name(template, s): values[s.code] for s in template.settings}


class TextInput(forms.TextInput):
    """A text field in the look of the pages."""

    def __init__(self, **attrs: str) -> None:
        super().__init__({"class": "form-control", "autocomplete": "off", "spellcheck": "false", **attrs})


class WorkloadForm(forms.Form):
    """What runs on a slice: the part that an order and a change have in common."""

    use_required_attribute = False

    image = forms.CharField(
        label=gettext_lazy("Image"),
        required=False,
        max_length=512,
        widget=TextInput(placeholder="registry.example.com/team/image:1.0"),
        help_text=gettext_lazy(
            "With a version or a digest; empty: the template's own. The V100 needs an image built for CUDA 12 or older."
        ),
    )
    command = forms.CharField(
        label=gettext_lazy("Command"),
        required=False,
        max_length=4000,
        widget=TextInput(),
        help_text=gettext_lazy("As in a shell. Empty: what the image starts by itself."),
    )
    args = forms.CharField(
        label=gettext_lazy("Arguments"), required=False, max_length=4000, widget=TextInput()
    )
    env = forms.CharField(
        label=gettext_lazy("Environment"),
        required=False,
        max_length=64_000,
        strip=False,
        widget=forms.Textarea({"class": "form-control", "rows": 4, "spellcheck": "false"}),
        help_text=gettext_lazy("One NAME=value a line. Team mates can read it: no passwords here."),
    )
    port = forms.IntegerField(
        label=gettext_lazy("Port"),
        required=False,
        min_value=1,
        max_value=65535,
        widget=TextInput(inputmode="numeric"),
        help_text=gettext_lazy("Where it listens. Empty: no address inside the cluster."),
    )
    cpu_request = forms.CharField(
        label=gettext_lazy("CPU request"),
        max_length=24,
        widget=TextInput(),
        help_text=gettext_lazy("Kept for it. 500m is half a CPU."),
    )
    cpu_limit = forms.CharField(
        label=gettext_lazy("CPU limit"),
        max_length=24,
        widget=TextInput(),
        help_text=gettext_lazy("It is slowed down above this."),
    )
    memory_request = forms.CharField(
        label=gettext_lazy("Memory request"),
        max_length=24,
        widget=TextInput(),
        help_text=gettext_lazy("Kept for it, such as 2Gi."),
    )
    memory_limit = forms.CharField(
        label=gettext_lazy("Memory limit"),
        max_length=24,
        widget=TextInput(),
        help_text=gettext_lazy("It is killed above this."),
    )
    allow_queue = forms.BooleanField(required=False, label=gettext_lazy("Wait in the queue"))

    def __init__(
        self, *args: Any, templates: Iterable[Template], base: WorkloadSpec | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.templates = list(templates)
        self.base = base
        self.workload: WorkloadSpec | None = None
        for template in self.templates:
            for setting in template.settings:
                self.fields[setting_name(template, setting)] = forms.CharField(
                    label=_(setting.label),
                    help_text=_(setting.help),
                    required=False,
                    max_length=200,
                    widget=TextInput(),
                )

    def chosen_template(self) -> Template:
        """Return the chosen template, the first one where none is chosen."""
        chosen = str(self.data.get("template", "")) or str(self.initial.get("template", ""))
        return next((t for t in self.templates if t.code == chosen), self.templates[0])

    def clean_command(self) -> tuple[str, ...]:
        """Split the command."""
        return words(self.cleaned_data["command"])

    def clean_args(self) -> tuple[str, ...]:
        """Split the arguments."""
        return words(self.cleaned_data["args"])

    def clean_env(self) -> tuple[EnvVar, ...]:
        """Read the variables."""
        return variables(self.cleaned_data["env"])

    def clean(self) -> dict[str, Any]:
        """Put the fields together to the workload as typed; it stays None where a field cannot be read."""
        template, data = self.chosen_template(), self.cleaned_data
        names = [name for name in WorkloadForm.base_fields if name != "allow_queue"]
        if any(name not in data for name in names):
            return data
        plain = replace(
            self.base or template.defaults,
            template=template.code,
            volume=self.volume_spec(),
            **{name: data[name] for name in names},
        )
        settings = {s.code: data.get(setting_name(template, s), "") for s in template.settings}
        try:
            self.workload = template.configure(plain, settings)
            if not plain.image.strip():
                self.workload = replace(self.workload, image=matrix.pinned(self.workload.image))
        except SettingRefused as refusal:
            self.add_error(f"set-{template.code}-{refusal.setting}", wording.render(refusal.text))
        return data

    def volume_spec(self) -> VolumeSpec | None:
        """Return the volume; a change keeps the one there is."""
        return self.base.volume if self.base else None

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Put each finding that stands in the way beside its field, or at the top where it has none."""
        for finding in findings:
            if finding.level == "refused":
                self.add_error(self.field_of(finding.place), _sentences(finding))

    def field_of(self, place: str) -> str | None:
        """Return the field that a finding's place ("env.2.name", "settings.parallel") belongs to."""
        head, _dot, rest = place.partition(".")
        candidates = (place, {"mount_path": "volume_path", "size": "volume_size"}.get(rest, head), head)
        setting = f"set-{self.chosen_template().code}-{rest}"
        return next((name for name in (setting, *candidates) if name in self.fields), None)


class OrderForm(WorkloadForm):
    """An order: what to run, how big, what it is called, and the rest with good defaults."""

    operation_key = forms.CharField(widget=forms.HiddenInput)
    package = forms.ModelChoiceField(
        Package.objects.none(), label=gettext_lazy("Size"), to_field_name="slug", empty_label=None
    )
    display_name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=MAX_DISPLAY_LENGTH,
        widget=TextInput(maxlength=str(MAX_DISPLAY_LENGTH)),
        help_text=gettext_lazy("Any language; your team sees it."),
        error_messages={"required": gettext_lazy("Give the slice a name.")},
    )
    volume = forms.BooleanField(required=False, label=gettext_lazy("Keep data on a volume"))
    volume_size = forms.CharField(
        label=gettext_lazy("Size of the volume"), required=False, max_length=24, widget=TextInput()
    )
    volume_path = forms.CharField(
        label=gettext_lazy("Mounted at"), required=False, max_length=500, widget=TextInput()
    )

    def __init__(self, *args: Any, user: User, packages: QuerySet[Package], **kwargs: Any) -> None:
        super().__init__(*args, templates=templates_catalogue.TEMPLATES.values(), **kwargs)
        self.user = user
        cast("forms.ModelChoiceField[Package]", self.fields["package"]).queryset = packages
        self.fields["template"] = forms.ChoiceField(
            choices=[(template.code, _(template.title)) for template in self.templates]
        )

    def clean_operation_key(self) -> str:
        """Return the key inside; a key issued to somebody else is refused (case C-17)."""
        try:
            opened = signing.loads(self.cleaned_data["operation_key"], salt=KEY_SALT)
        except signing.BadSignature as error:
            raise forms.ValidationError(_("This form is out of date. Open the order page again.")) from error
        if opened["user"] != self.user.pk:
            raise forms.ValidationError(
                _("This form was made for another person. Open the order page again and order from there.")
            )
        return str(opened["key"])

    def volume_spec(self) -> VolumeSpec | None:
        """Return the volume as typed."""
        data = self.cleaned_data
        return VolumeSpec(data["volume_size"], data["volume_path"]) if data.get("volume") else None


class ChangeForm(WorkloadForm):
    """A change of a slice; its package, name and volume stay."""

    expected = forms.IntegerField(widget=forms.HiddenInput)


def _sentences(finding: Finding) -> str:
    return " ".join(wording.render(text) for text in (finding.sentence, finding.mend) if text.msgid)


def sentence_of(*texts: Text) -> str:
    """Return several texts as one line in the reader's language."""
    return " ".join(wording.render(text) for text in texts if text.msgid)
