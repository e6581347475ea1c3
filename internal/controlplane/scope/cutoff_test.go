package scope

import (
	"context"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// "The identity refused from then on", by a hub that has just started, too: nobody who acts for a cluster is answered before it is known
// which are cut off, and nobody else waits for that.
func TestCutOffAfterARestart(t *testing.T) {
	t.Parallel()
	mc := func(name string, labels map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
			"metadata": map[string]any{"name": name, "labels": labels}, "spec": map[string]any{"hubAcceptsClient": false},
		}}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{{Group: "cluster.open-cluster-management.io", Version: "v1",
			Resource: "managedclusters"}: "ManagedClusterList"},
		mc("c1", map[string]any{fleet.LabelCutOff: "true"}), mc("c2", nil))
	synctest.Test(t, func(t *testing.T) {
		cutOff := NewCutOff()
		authorize := func(who user.Info) <-chan authorizer.Decision {
			answer := make(chan authorizer.Decision, 1)
			go func() {
				decision, _, _ := cutOff.Authorize(t.Context(), authorizer.AttributesRecord{User: who})
				answer <- decision
			}()
			synctest.Wait()
			return answer
		}
		for _, who := range []user.Info{admin, joiner, manager} {
			if answer := authorize(who); len(answer) != 1 || <-answer != authorizer.DecisionNoOpinion {
				t.Errorf("%s waits, or is refused", who.GetName())
			}
		}
		other := &user.DefaultInfo{Name: fleet.AddOnUser("c2", "a", "a-agent"), Groups: fleet.AddOnGroups("c2", "a")}
		waiting := map[user.Info]<-chan authorizer.Decision{}
		for _, who := range []user.Info{agent, aws, addOn, account, other} {
			if waiting[who] = authorize(who); len(waiting[who]) != 0 {
				t.Errorf("%s is answered before it is known whether its cluster is cut off", who.GetName())
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if decision, _, err := cutOff.Authorize(ended, authorizer.AttributesRecord{User: addOn}); decision != authorizer.DecisionDeny ||
			err == nil {
			t.Errorf("a request that has ended: %v, %v", decision, err)
		}

		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- cutOff.Run(ctx, client) }()
		for who, answer := range waiting {
			if decision := <-answer; (decision == authorizer.DecisionDeny) != (who != other) {
				t.Errorf("%s: %v", who.GetName(), decision)
			}
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
