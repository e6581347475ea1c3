package apiclient

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// The resource of a kind is none of its subresources, and a version that is not served has no resources.
func TestResourceOf(t *testing.T) {
	t.Parallel()
	api := http.NewServeMux()
	serve := func(path, content string) {
		api.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(content)) })
	}
	serve("/api/v1", `{"resources":[{"name":"pods/exec","kind":"Pod"},{"name":"pods","kind":"Pod","namespaced":true}]}`)
	serve("/apis/example.com/v1", `{"resources":[{"name":"things","kind":"Thing"}]}`)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	raw, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	thing := schema.GroupVersion{Group: "example.com", Version: "v1"}
	for kind, want := range map[schema.GroupVersionKind]Resource{
		{Version: "v1", Kind: "Pod"}:                                 {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, true},
		thing.WithKind("Thing"):                                      {thing.WithResource("things"), false},
		thing.WithKind("Other"):                                      {},
		{Group: "example.com", Version: "v2", Kind: "Thing"}:         {},
		{Group: "elsewhere.example.com", Version: "v1", Kind: "Pod"}: {},
	} {
		served, err := Resources(t.Context(), raw, kind.GroupVersion())
		if got, found := ResourceOf(kind, served); err != nil || got != want || found != (want.Resource != "") {
			t.Errorf("%s: %+v, %t, %v", kind, got, found, err)
		}
	}
}
