package scope

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// manager is a service account of the hub that looks into its own namespace.
var manager = &user.DefaultInfo{Name: fleet.ServiceAccountUser(fleet.NamespaceHub, "manager")}

// agentRequest is a request to the hub.
type agentRequest struct {
	who                                     user.Info
	verb, namespace, group, resource, query string
}

func (a agentRequest) String() string {
	return fmt.Sprintf("%s: %s %s/%s in %q with %q", a.who.GetName(), a.verb, a.group, a.resource, a.namespace, a.query)
}

const (
	workGroup    = "work.open-cluster-management.io"
	addOnGroup   = "addon.open-cluster-management.io"
	clusterGroup = "cluster.open-cluster-management.io"
	tokenGroup   = "authentication.open-cluster-management.io"
)

// Agents wait until it is known whether the hub is suspended, are to retry as long as it is, and then get what they request. They
// do not learn which works, add-ons, accounts and tokens are missing on the hub, and remove none. Nobody else waits, nor do registration,
// reports and certificates. The log of each process says that the hub is suspended, and when it is no more.
func TestSuspension(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	marker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: fleet.ConfigMapWorksHeld}}
	client := dynamicfake.NewSimpleDynamicClient(scheme, marker)
	withheld := []agentRequest{
		{agent, "list", "c1", workGroup, "manifestworks", ""},
		{agent, "get", "c1", workGroup, "manifestworks", ""},
		{agent, "patch", "c1", workGroup, "manifestworks", ""},
		{aws, "list", "c1", workGroup, "manifestworks", ""},
		{agent, "list", "c1", addOnGroup, "managedclusteraddons", ""},
		{agent, "watch", "c1", addOnGroup, "managedclusteraddons", ""},
		{agent, "list", "c1", addOnGroup, "managedclusteraddons", "limit=1&continue=next"},
		{agent, "list", "c1", addOnGroup, "managedclusteraddons", "limit=500"},
		{agent, "list", "c1", tokenGroup, "managedserviceaccounts", ""},
		{agent, "watch", "c1", "", "secrets", ""},
		{addOn, "list", "c1", workGroup, "manifestworks", ""},
		{addOn, "watch", "c1", "policy.example.com", "policies", ""},
		{account, "watch", "c1", "policy.example.com", "policies", ""},
	}
	goOn := []agentRequest{
		{agent, "watch", "", clusterGroup, "managedclusters", ""},
		{agent, "list", "", "certificates.k8s.io", "certificatesigningrequests", ""},
		{agent, "update", "c1", "coordination.k8s.io", "leases", ""},
		{agent, "patch", "c1", addOnGroup, "managedclusteraddons", ""},
		{agent, "create", "c1", "events.k8s.io", "events", ""},
		{agent, "list", "c1", addOnGroup, "managedclusteraddons", "limit=1"},
		{agent, "list", "c1", workGroup, "manifestworks", "limit=1"},
		{addOn, "update", "c1", "coordination.k8s.io", "leases", ""},
		{account, "list", "c2", workGroup, "manifestworks", ""},
		{account, "watch", "", addOnGroup, "managedclusteraddons", ""},
		{manager, "watch", fleet.NamespaceHub, "", "configmaps", ""},
		{admin, "list", "c1", workGroup, "manifestworks", ""},
		{admin, "watch", "", addOnGroup, "managedclusteraddons", ""},
	}
	synctest.Test(t, func(t *testing.T) {
		suspension := NewSuspension()
		handler := suspension.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
			serializer.NewCodecFactory(scheme))
		send := func(ctx context.Context, what agentRequest) <-chan int {
			info := &request.RequestInfo{IsResourceRequest: true, Verb: what.verb, Namespace: what.namespace, APIGroup: what.group,
				Resource: what.resource}
			ctx = request.WithUser(request.WithRequestInfo(ctx, info), what.who)
			answer := make(chan int, 1)
			go func() {
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?"+what.query, nil))
				answer <- recorder.Code
			}()
			synctest.Wait()
			return answer
		}
		atOnce := func(all []agentRequest, want int) {
			t.Helper()
			for _, what := range all {
				if answer := send(t.Context(), what); len(answer) != 1 || <-answer != want {
					t.Errorf("%s: it waits, or gets another answer than %d", what, want)
				}
			}
		}
		atOnce(goOn, http.StatusOK)
		over, end := context.WithCancel(t.Context())
		end()
		if answer := send(over, withheld[0]); len(answer) != 1 || <-answer != http.StatusServiceUnavailable {
			t.Error("an agent whose request ends before it is known whether the hub is suspended gets another answer than to retry")
		}
		waiting := send(t.Context(), withheld[0])
		if len(waiting) != 0 {
			t.Error("an agent is answered before it is known whether the hub is suspended")
		}
		var said strings.Builder
		logger := funcr.New(func(_, line string) { said.WriteString(line + "\n") }, funcr.Options{})
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		ended := make(chan error, 1)
		go func() { ended <- suspension.Run(ctx, client) }()
		synctest.Wait()
		if code := <-waiting; code != http.StatusServiceUnavailable {
			t.Errorf("the agent that waited got %d", code)
		}
		atOnce(withheld, http.StatusServiceUnavailable)
		atOnce(goOn, http.StatusOK)
		configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		if err := client.Resource(configMaps).Namespace(marker.Namespace).Delete(t.Context(), marker.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		atOnce(slices.Concat(withheld, goOn), http.StatusOK)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for _, want := range []string{"This hub is held", "This hub is not held any more"} {
			if strings.Count(said.String(), want) != 1 {
				t.Errorf("the log does not say %q once: %s", want, said.String())
			}
		}
	})
}
