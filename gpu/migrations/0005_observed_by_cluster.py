from django.db import migrations, models


class Migration(migrations.Migration):
    """Key observed objects by cluster. The index is built beside the old one while the table is read and written;
    only its change of name takes a lock. An attempt that was broken off is begun again.
    """

    atomic = False

    dependencies = [
        ('gpu', '0004_clusters'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint(model_name='observed', name='observed_key'),
                migrations.AddConstraint(
                    model_name='observed',
                    constraint=models.UniqueConstraint(fields=('cluster', 'kind', 'namespace', 'name'), name='observed_in_cluster'),
                ),
            ],
            database_operations=[
                migrations.RunSQL(
                    sql=[
                        'ALTER TABLE gpu_observed DROP CONSTRAINT IF EXISTS observed_in_cluster',
                        'DROP INDEX CONCURRENTLY IF EXISTS observed_in_cluster',
                        'CREATE UNIQUE INDEX CONCURRENTLY observed_in_cluster ON gpu_observed (cluster_id, kind, namespace, name)',
                        'ALTER TABLE gpu_observed ADD CONSTRAINT observed_in_cluster UNIQUE USING INDEX observed_in_cluster',
                        'ALTER TABLE gpu_observed DROP CONSTRAINT IF EXISTS observed_key',
                    ],
                    reverse_sql=[
                        'DELETE FROM gpu_observed WHERE cluster_id <> 1',
                        'CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS observed_key ON gpu_observed (kind, namespace, name)',
                        'ALTER TABLE gpu_observed ADD CONSTRAINT observed_key UNIQUE USING INDEX observed_key',
                        'ALTER TABLE gpu_observed DROP CONSTRAINT IF EXISTS observed_in_cluster',
                    ],
                ),
            ],
        ),
    ]
