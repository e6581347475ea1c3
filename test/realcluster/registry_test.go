package realcluster

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A registry has what an archive has, by tags and digests, for who knows the password.
func TestRegistry(t *testing.T) {
	t.Parallel()
	const layer = "a layer"
	manifest := `{"mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [{"digest": "sha256:` + digest([]byte(layer)) + `"}]}`
	sum := digest([]byte(manifest))
	layout, err := archive([]file{
		{name: "blobs/sha256/" + sum, mode: 0o644, content: []byte(manifest)},
		{name: "blobs/sha256/" + digest([]byte(layer)), mode: 0o644, content: []byte(layer)},
		{name: "index.json", mode: 0o644, content: []byte(`{"manifests": [{"digest": "sha256:` + sum + `",
			"annotations": {"io.containerd.image.name": "ghcr.io/a/b:c"}}]}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry()
	if err := r.add(bytes.NewReader(layout)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path, password  string
		code            int
		mediaType, body string
	}{
		{"/v2/a/b/manifests/c", r.Password, http.StatusOK, "application/vnd.oci.image.manifest.v1+json", manifest},
		{"/v2/a/b/manifests/sha256:" + sum, r.Password, http.StatusOK, "application/vnd.oci.image.manifest.v1+json", manifest},
		{"/v2/a/b/blobs/sha256:" + digest([]byte(layer)), r.Password, http.StatusOK, "application/octet-stream", layer},
		{"/v2/a/b/manifests/d", r.Password, http.StatusNotFound, "text/plain; charset=utf-8", "not found"},
		{"/v2/a/c/manifests/c", r.Password, http.StatusNotFound, "text/plain; charset=utf-8", "not found"},
		{"/v2/", r.Password, http.StatusNotFound, "text/plain; charset=utf-8", "not found"},
		{"/v2/a/b/manifests/c", "guessed", http.StatusUnauthorized, "text/plain; charset=utf-8", "the password is wrong"},
		{"/v2/a/b/manifests/c", "", http.StatusUnauthorized, "text/plain; charset=utf-8", "the password is wrong"},
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil)
		if test.password != "" {
			request.SetBasicAuth(r.User, test.password)
		}
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, request)
		mediaType, body := answer.Header().Get("Content-Type"), answer.Body.String()
		if answer.Code != test.code || mediaType != test.mediaType || !strings.Contains(body, test.body) {
			t.Errorf("%s with the password %q: %d %v %s", test.path, test.password, answer.Code, answer.Header(), body)
		}
	}
	if pulls := r.Pulls("a/b"); pulls != 1 { // by the tag, and with the password
		t.Errorf("%d pulls", pulls)
	}
}

// What is pushed to a registry is there.
func TestPushToRegistry(t *testing.T) {
	t.Parallel()
	r := newRegistry()
	send := func(method, path, body string, code int) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		request.SetBasicAuth(r.User, r.Password)
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, request)
		if answer.Code != code {
			t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
		return answer
	}
	const layer, manifest = "a layer", `{"mediaType": "application/vnd.oci.image.manifest.v1+json"}`
	sum := "sha256:" + digest([]byte(layer))
	send(http.MethodHead, "/v2/a/b/blobs/"+sum, "", http.StatusNotFound)
	for _, content := range []string{"a lay", layer} {
		at := send(http.MethodPost, "/v2/a/b/blobs/uploads/", "", http.StatusAccepted).Header().Get("Location")
		at = send(http.MethodPatch, at, content, http.StatusAccepted).Header().Get("Location")
		code := http.StatusCreated
		if content != layer {
			code = http.StatusBadRequest
		}
		send(http.MethodPut, at+"?digest="+sum, "", code)
	}
	send(http.MethodPut, "/v2/a/b/manifests/c", manifest, http.StatusCreated)
	if got := send(http.MethodGet, "/v2/a/b/blobs/"+sum, "", http.StatusOK).Body.String(); got != layer {
		t.Errorf("the blob is %q", got)
	}
	if got := send(http.MethodGet, "/v2/a/b/manifests/c", "", http.StatusOK).Body.String(); got != manifest {
		t.Errorf("the manifest is %q", got)
	}
}
