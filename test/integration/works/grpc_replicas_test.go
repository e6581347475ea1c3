package works

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// GR-01: several replicas of the gRPC server run, and agents on either get their works. When one is gone, the agents of the other notice
// nothing; those that it had get what they have missed once it is back.
func TestReplicasOfTheGRPCServer(t *testing.T) {
	t.Parallel()
	first := startGRPCHub(t)
	second := first.startReplica(t)
	c := first.Client(t)
	works := map[*grpcHub]*workv1.ManifestWork{}
	for replica, cluster := range map[*grpcHub]string{first: "by-grpc-first", second: "by-grpc-second"} {
		agent, _ := replica.newAgent(t, cluster, "--workload-source-driver", "grpc")
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		env.Accept(t, c, cluster)
		env.AwaitAvailable(t, c, cluster)
		works[replica] = configMapWork(cluster, cluster, "one")
		framework.Create(t, c, works[replica])
	}
	for _, work := range works {
		awaitAppliedByGRPC(t, c, work)
		awaitValue(t, work.Name, "one")
	}
	if err := first.broker.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, work := range works {
		before := work.DeepCopy()
		work.Spec = configMapWork(work.Namespace, work.Name, "two").Spec
		if err := c.Patch(t.Context(), work, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	awaitAppliedByGRPC(t, c, works[second])
	awaitValue(t, works[second].Name, "two")
	awaitValue(t, works[first].Name, "one")
	if err := first.broker.Start(); err != nil {
		t.Fatal(err)
	}
	awaitAppliedByGRPC(t, c, works[first])
	awaitValue(t, works[first].Name, "two")
	for _, work := range works { // while there are agents to remove what they have applied
		if err := c.Delete(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		awaitValue(t, work.Name, "")
	}
}
