import django.db.models.deletion
import tenants.models
from django.db import migrations, models


def first_cluster(apps, schema_editor):
    """Make the row that everything there is belongs to; its connection is that of the settings."""
    clusters = apps.get_model("tenants", "Cluster").objects.using(schema_editor.connection.alias)
    row = clusters.create(slug="default", name="Cluster", is_default=True)
    assert row.pk == tenants.models.FIRST_CLUSTER  # noqa: S101


class Migration(migrations.Migration):
    """Several clusters are a row each. A version without them goes on writing: its rows get the first one."""

    dependencies = [
        ('tenants', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Cluster',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('slug', models.SlugField(max_length=40, unique=True, verbose_name='short name')),
                ('name', models.CharField(max_length=100, verbose_name='name')),
                ('kubeconfig', models.CharField(blank=True, help_text="Path of a file that worker and watcher can read; empty for the portal's own settings.", max_length=400, verbose_name='kubeconfig')),
                ('context', models.CharField(blank=True, help_text='A context of that file; empty for its current one.', max_length=253, verbose_name='context')),
                ('is_default', models.BooleanField(default=False, verbose_name='for new projects')),
            ],
            options={
                'verbose_name': 'cluster',
                'verbose_name_plural': 'clusters',
                'ordering': ['slug'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_default', True)), fields=('is_default',), name='one_default_cluster'), models.UniqueConstraint(fields=('kubeconfig', 'context'), name='one_row_per_connection')],
            },
        ),
        migrations.RunPython(first_cluster, migrations.RunPython.noop),
        migrations.AddField(
            model_name='project',
            name='cluster',
            field=models.ForeignKey(db_default=models.Value(1), default=tenants.models.default_cluster, on_delete=django.db.models.deletion.PROTECT, related_name='projects', to='tenants.cluster', verbose_name='cluster'),
        ),
    ]
