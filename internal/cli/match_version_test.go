package cli_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-01: with --match-server-version, a server of another version of Kubernetes gets a request for its version, and nothing else.
func TestMatchServerVersion(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Run(t, "", "create", "clusterset", "prod").Succeeds(t) // without the flag, no version is requested
	h.Handle("GET /version", fakehub.JSON(`{"gitVersion":"v1.2.3"}`))
	other := h.Run(t, "", "create", "clusterset", "staging", "--match-server-version")
	other.Fails(t, "--match-server-version: the server is of version 1.2 of Kubernetes")
	own := regexp.MustCompile(`this program is of version (1[.][0-9]+)`).FindStringSubmatch(other.ErrOut)
	if own == nil {
		t.Fatalf("it does not name its own version: %s", other.ErrOut)
	}
	var posts []string
	for _, request := range h.Requests(http.MethodPost) {
		posts = append(posts, request.Body)
	}
	if slices.ContainsFunc(posts, func(body string) bool { return strings.Contains(body, "staging") }) {
		t.Errorf("it wrote: %v", posts)
	}
	h.Handle("GET /version", fakehub.JSON(`{"gitVersion":"v`+own[1]+`.77+vendor"}`))
	h.Run(t, "", "create", "clusterset", "staging", "--match-server-version").Succeeds(t, "Clusterset staging is created")
	h.Handle("GET /version", http.NotFound)
	h.Run(t, "", "get", "clustersets", "--match-server-version").Fails(t, "does not tell the version of the server (status 404)")
}
