package charts

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// CA-39: where a chart cannot be had, the error says from where it was to come, and which flag names another place.
func TestLoadFails(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	nobody := server.URL
	server.Close()
	_, err := Load(Reference{Repository: nobody, Name: "argocd", Version: "1.2.3"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"version 1.2.3 of chart argocd", nobody, "--repository", "HTTPS_PROXY"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
}
