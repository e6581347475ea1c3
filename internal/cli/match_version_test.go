package cli_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-01: with --match-server-version, a server of another version of Kubernetes is asked for its version, and nothing else.
func TestMatchServerVersion(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.run(t, "", "create", "clusterset", "prod").succeeds(t) // without the flag, no version is asked for
	h.Answer("GET /version", fakehub.JSON(`{"gitVersion":"v1.2.3"}`))
	other := h.run(t, "", "create", "clusterset", "staging", "--match-server-version")
	other.fails(t, "--match-server-version: the server is of version 1.2 of Kubernetes")
	own := regexp.MustCompile(`this program is of version (1[.][0-9]+)`).FindStringSubmatch(other.errOut)
	if own == nil {
		t.Fatalf("it does not name its own version: %s", other.errOut)
	}
	var posts []string
	for _, request := range h.Requests(http.MethodPost) {
		posts = append(posts, request.Body)
	}
	if slices.ContainsFunc(posts, func(body string) bool { return strings.Contains(body, "staging") }) {
		t.Errorf("it wrote: %v", posts)
	}
	h.Answer("GET /version", fakehub.JSON(`{"gitVersion":"v`+own[1]+`.77+vendor"}`))
	h.run(t, "", "create", "clusterset", "staging", "--match-server-version").succeeds(t, "Clusterset staging is created")
	h.Answer("GET /version", http.NotFound)
	h.run(t, "", "get", "clustersets", "--match-server-version").fails(t, "does not tell the version of the server (status 404)")
}
