package registration

import (
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/integration/framework"
)

// One agent that asks all the time waits for itself: the hub serves so many requests of agents at once, and tells agents apart by their
// users when it chooses whose is next. What the hub itself does does not wait with them.
func TestAgentsWaitForThemselves(t *testing.T) {
	t.Parallel()
	const name = "fair"
	framework.AcceptAll(t, name)
	admin := framework.Hub.Client(t)
	schemas := &flowcontrolv1.FlowSchemaList{}
	if err := admin.List(t.Context(), schemas); err != nil {
		t.Fatal(err)
	}
	byUID := map[string]*flowcontrolv1.FlowSchema{}
	for i := range schemas.Items {
		byUID[string(schemas.Items[i].UID)] = &schemas.Items[i]
	}
	for who, config := range map[string]*rest.Config{
		"an agent":                     framework.WithCertificate(t, framework.Hub, framework.AgentSubject(name, "agent1"), framework.OfCluster(name)),
		"one that joins with a token":  withToken(t, framework.Hub, bootstrapAccountToken(t, framework.Hub)),
		"one that joins with a secret": withToken(t, framework.Hub, framework.Hub.BootstrapToken(t)),
	} {
		schema := byUID[flowSchemaOf(t, config)]
		if schema == nil {
			t.Errorf("requests of %s are in no flow", who)
			continue
		}
		if by := schema.Spec.DistinguisherMethod; by == nil || by.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
			t.Errorf("%s is of FlowSchema %s, which does not tell users apart", who, schema.Name)
		}
		level := &flowcontrolv1.PriorityLevelConfiguration{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: schema.Spec.PriorityLevelConfiguration.Name}, level); err != nil {
			t.Fatal(err)
		}
		if limited := level.Spec.Limited; limited == nil || limited.LimitResponse.Queuing == nil {
			t.Errorf("%s is of the priority level %s, which has no limit and queues: %+v", who, level.Name, level.Spec)
		}
	}
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	if schema := byUID[flowSchemaOf(t, config)]; schema == nil || schema.Name != "exempt" {
		t.Errorf("an administrator waits with others: %v", schema)
	}
}

// flowSchemaOf is the UID of the FlowSchema of a user's requests, whatever becomes of them.
func flowSchemaOf(t *testing.T, config *rest.Config) string {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+
		"/apis/cluster.open-cluster-management.io/v1/managedclusters", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
}
