package ekstoken

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve is an STS that knows the web identity "token-of-pod", and lets the role it has become the role of the hub.
func serve(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization := r.Header.Get("Authorization")
		switch action := r.FormValue("Action"); {
		case action == "AssumeRoleWithWebIdentity" && r.FormValue("WebIdentityToken") == "token-of-pod" && authorization == "":
			fmt.Fprint(w, answerOf(action, "POD"))
		case action == "AssumeRole" && r.FormValue("RoleArn") == "arn:aws:iam::123456789012:role/hub" &&
			strings.Contains(authorization, "Credential=POD/") && strings.Contains(authorization, "/us-west-2/sts/aws4_request") &&
			r.Header.Get("X-Amz-Security-Token") == "session-of-POD":
			fmt.Fprint(w, answerOf(action, "HUB"))
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>`)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func answerOf(action, key string) string {
	return fmt.Sprintf(`<%[1]sResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><%[1]sResult><Credentials><AccessKeyId>%[2]s</AccessKeyId>
		<SecretAccessKey>secret</SecretAccessKey><SessionToken>session-of-%[2]s</SessionToken></Credentials></%[1]sResult></%[1]sResponse>`,
		action, key)
}

func podWith(t *testing.T, token, endpoint string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::210987654321:role/pod")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
	t.Setenv("AWS_ENDPOINT_URL_STS", endpoint)
}

var options = Options{Cluster: "hub1", Region: "us-west-2", Role: "arn:aws:iam::123456789012:role/hub"}

// RG-52: a token is a signed question to STS who one is, as the role on the hub and for this hub.
func TestGet(t *testing.T) { //nolint:paralleltest // it sets the environment
	server := serve(t)
	podWith(t, "token-of-pod\n", server.URL)
	credential, err := Get(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(credential.Status.ExpirationTimestamp.Time); left <= 0 || left > 15*time.Minute {
		t.Errorf("it holds for %s", left)
	}
	encoded, ok := strings.CutPrefix(credential.Status.Token, "k8s-aws-v1.")
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || !ok {
		t.Fatalf("token %q: %v", credential.Status.Token, err)
	}
	signed, err := url.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	query := signed.Query()
	for key, want := range map[string]string{
		"Action": "GetCallerIdentity", "X-Amz-Expires": "60", "X-Amz-SignedHeaders": "host;x-k8s-aws-id", "X-Amz-Security-Token": "session-of-HUB",
	} {
		if query.Get(key) != want {
			t.Errorf("%s is %q, want %q", key, query.Get(key), want)
		}
	}
	if !strings.HasPrefix(query.Get("X-Amz-Credential"), "HUB/") || !strings.HasPrefix(signed.String(), server.URL) {
		t.Errorf("token %s", signed)
	}
}

// RG-52: what is wrong is said with the role that AWS refuses.
func TestRefused(t *testing.T) { //nolint:paralleltest // it sets the environment
	server := serve(t)
	other := options
	other.Role = "arn:aws:iam::123456789012:role/other"
	for _, test := range []struct {
		token string
		o     Options
		want  string
	}{
		{"token-of-other", options, "become arn:aws:iam::210987654321:role/pod, the role of the pod: AWS refuses it: AccessDenied: not you"},
		{"token-of-pod", other, "become arn:aws:iam::123456789012:role/other: AWS refuses it"},
		{"token-of-pod", Options{Cluster: "hub1", Role: "x"}, "--region is empty"},
	} {
		podWith(t, test.token, server.URL)
		if _, err := Get(t.Context(), test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %s", err, test.want)
		}
	}
	t.Setenv("AWS_ROLE_ARN", "")
	if _, err := Get(t.Context(), options); err == nil || !strings.Contains(err.Error(), "the pod has no IAM role") {
		t.Errorf("without a role: %v", err)
	}
}
