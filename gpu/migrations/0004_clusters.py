import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """What was observed belongs to a cluster. A constant default costs no rewrite of the table."""

    dependencies = [
        ('gpu', '0003_model_pulls'),
        ('tenants', '0002_clusters'),
    ]

    operations = [
        migrations.AddField(
            model_name='observed',
            name='cluster',
            field=models.ForeignKey(db_constraint=False, db_default=models.Value(1), db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.cluster'),
        ),
        migrations.AddField(
            model_name='watchstate',
            name='cluster',
            field=models.ForeignKey(db_default=models.Value(1), db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='watches', to='tenants.cluster'),
        ),
        migrations.AlterField(
            model_name='watchstate',
            name='kind',
            field=models.CharField(max_length=40),
        ),
        migrations.AddConstraint(
            model_name='watchstate',
            constraint=models.UniqueConstraint(fields=('cluster', 'kind'), name='one_watch_per_kind'),
        ),
    ]
