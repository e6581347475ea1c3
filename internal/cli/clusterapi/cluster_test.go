package clusterapi_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clusterapi"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-02: each discovery may read as much as any other, as a watch that goes on for days makes many.
func TestEachDiscoveryIsBoundedAlone(t *testing.T) {
	t.Parallel()
	large := gzipped(t, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[]}`+strings.Repeat(" ", 150<<20))
	fake := fakehub.New(t)
	fake.Connect("c1", &fakehub.ClusterAPI{
		Collections: []fakehub.Collection{{GroupVersion: "example.com/v1"}},
		Handlers: map[string]http.HandlerFunc{"/apis/example.com/v1": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(large)
		}},
	})
	cluster, err := clusterapi.Of(t.Context(), fake.Client(t), "c1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, failed, err := cluster.Resources(t.Context(), false); err != nil || len(failed) > 0 {
			t.Errorf("discovery %d: %v, %v", i, failed, err)
		}
	}
}

func gzipped(t *testing.T, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	if _, err := writer.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
