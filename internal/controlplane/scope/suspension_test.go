package scope

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Agents wait until it is known whether works are held, are told to come back as long as they are, and then get them. Nobody else waits,
// and nothing else of agents.
func TestHold(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: fleet.ConfigMapWorksHeld}}
	client := dynamicfake.NewSimpleDynamicClient(scheme, held)
	synctest.Test(t, func(t *testing.T) {
		suspension := NewWorkSuspension()
		handler := suspension.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
			serializer.NewCodecFactory(scheme))
		ask := func(who user.Info, group, resource string) <-chan int {
			info := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIGroup: group, Resource: resource}
			ctx := request.WithUser(request.WithRequestInfo(t.Context(), info), who)
			answer := make(chan int, 1)
			go func() {
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
				answer <- recorder.Code
			}()
			synctest.Wait()
			return answer
		}
		const works, clusters = "work.open-cluster-management.io", "cluster.open-cluster-management.io"
		atOnce := func(who user.Info, group, resource string, want int) {
			t.Helper()
			if answer := ask(who, group, resource); len(answer) != 1 || <-answer != want {
				t.Errorf("%s of %s waits, or gets another answer than %d", resource, who.GetName(), want)
			}
		}
		atOnce(admin, works, "manifestworks", http.StatusOK)
		atOnce(agent, clusters, "managedclusters", http.StatusOK)
		waiting := ask(agent, works, "manifestworks")
		if len(waiting) != 0 {
			t.Error("an agent is answered before it is known whether works are held")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- suspension.Run(ctx, client) }()
		synctest.Wait()
		if code := <-waiting; code != http.StatusServiceUnavailable {
			t.Errorf("the agent that waited got %d", code)
		}
		for _, who := range []user.Info{agent, aws, addOn} {
			atOnce(who, works, "manifestworks", http.StatusServiceUnavailable)
		}
		atOnce(admin, works, "manifestworks", http.StatusOK)
		configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		if err := client.Resource(configMaps).Namespace(held.Namespace).Delete(t.Context(), held.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		atOnce(agent, works, "manifestworks", http.StatusOK)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
