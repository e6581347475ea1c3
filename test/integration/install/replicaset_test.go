package install

import (
	"context"
	"fmt"
	"testing"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// MR-01 MR-07, contract 10.6: the rights in deploy/ are enough for the life of a set, even of one with an executor.
func testSetsExisting(t *testing.T, existing *env.Server) {
	const name = "set-existing"
	c := existing.Client(t)
	clusters := framework.ClusterNamespaces(t, c, name, 2)
	framework.Decide(t, c, name, clusters...)
	set := framework.ReplicaSet(name, name, framework.SetManifest(name, "1"), name)
	set.Spec.ManifestWorkTemplate.Executor = &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type: workv1.ExecutorSubjectTypeServiceAccount, ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "apps", Name: "bot"},
	}}
	framework.Create(t, c, set)
	framework.AwaitSummary(t, c, set, workv1alpha1.ManifestWorkReplicaSetSummary{Total: 2, DesiredTotal: 2, Updated: 2})
	framework.UpdateSet(t, c, set, func(s *workv1alpha1.ManifestWorkReplicaSet) {
		s.Spec.ManifestWorkTemplate.Workload.Manifests = framework.RawManifests(framework.SetManifest(name, "2"))
	})
	framework.AwaitUpdated(t, c, set, "2", 2, 2)
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, c, set)
	env.Eventually(t, func(ctx context.Context) error {
		if works, err := framework.WorksOf(ctx, c, set); err != nil || len(works) > 0 {
			return fmt.Errorf("%d works are left: %w", len(works), err)
		}
		return nil
	})
}
