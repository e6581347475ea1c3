package framework

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/clusterproxy/oidc/oidctest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/test/env"
)

// Proxied is a cluster with the add-on cluster-proxy, which alice, who is no administrator, may enter.
type Proxied struct {
	On    *env.Server
	API   schema.GroupVersion
	Name  string
	Agent *env.Agent
	Alice string
}

// NewProxied joins a cluster, enables the add-on there and waits until it is available.
func NewProxied(t *testing.T, on *env.Server, name string) *Proxied {
	t.Helper()
	p := &Proxied{On: on, API: api.Standalone, Name: name, Alice: "alice-" + name}
	p.Agent = env.Join(t, on, Managed, name, "--namespace", Namespace(t, Managed.Client(t), name))
	p.enable(t)
	p.AwaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")
	p.LetAliceEnter(t)
	return p
}

// LetAliceEnter gives her the right on the hub, and waits until she has it.
func (p *Proxied) LetAliceEnter(t *testing.T) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "enter-" + p.Name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{p.API.Group}, Resources: []string{"managedclusters/proxy"}, ResourceNames: []string{p.Name}, Verbs: []string{"*"}}}}
	Create(t, p.On.Client(t), role, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "enter-" + p.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: p.Alice}}})
	env.Eventually(t, func(ctx context.Context) error {
		return p.As(t, p.Alice).CoreV1().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	})
}

// AddOn is the add-on cluster-proxy of the cluster.
func (p *Proxied) AddOn() *addonv1beta1.ManagedClusterAddOn {
	return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: fleet.AddOnClusterProxy}}
}

func (p *Proxied) enable(t *testing.T) {
	t.Helper()
	Create(t, p.On.Client(t), p.AddOn())
}

// AwaitAvailable waits until the condition Available of the add-on has the status and the reason, and the text in its message.
func (p *Proxied) AwaitAvailable(t *testing.T, status metav1.ConditionStatus, reason, text string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		addOn := p.AddOn()
		if err := p.On.Client(t).Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable)
		if cond == nil || cond.Status != status || cond.Reason != reason || !strings.Contains(cond.Message, text) {
			return fmt.Errorf("want Available=%s, %s, %q; have %+v", status, reason, text, cond)
		}
		return nil
	})
}

// Config is the configuration of a user of the hub, by which the cluster is reached.
func (p *Proxied) Config(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	config := AsAdmin(t, p.On)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	config.Host += api.Path(p.API, p.Name, fleet.SubresourceProxy)
	return config
}

// As is a client of the cluster that reaches it through the hub, as a user of the hub.
func (p *Proxied) As(t *testing.T, user string, groups ...string) *kubernetes.Clientset {
	t.Helper()
	return kubernetes.NewForConfigOrDie(p.Config(t, user, groups...))
}

// Bind lets a user of the hub read and write ConfigMaps in the namespace of the cluster, on the cluster.
func (p *Proxied) Bind(t *testing.T, user string) {
	t.Helper()
	c := Managed.Client(t)
	Create(t, c, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: user},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: access.Prefix + user}}})
	env.Eventually(t, func(ctx context.Context) error {
		_, err := p.As(t, user).CoreV1().ConfigMaps(p.Name).List(ctx, metav1.ListOptions{})
		return err
	})
}

// Send sends a request to the hub as the user, and returns the answer.
func (p *Proxied) Send(t *testing.T, config *rest.Config, method, path string, header http.Header, body string) (int, string) {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		request.Header[key] = values
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// WhoIsThere is as whom the cluster takes a request.
func (p *Proxied) WhoIsThere(t *testing.T, config *rest.Config, header http.Header) authenticationv1.UserInfo {
	t.Helper()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	code, answer := p.Send(t, config, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", header,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	review := &authenticationv1.SelfSubjectReview{}
	if err := json.Unmarshal([]byte(answer), review); err != nil || code != http.StatusCreated {
		t.Fatalf("the cluster answers %d %s: %v", code, answer, err)
	}
	return review.Status.UserInfo
}

// Trust has the owner of the cluster trust the issuer, with more lines of its configuration.
func (p *Proxied) Trust(t *testing.T, issuer *oidctest.Issuer, more string) {
	t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: fleet.ConfigMapHubAccess}, Data: map[string]string{
		"rules.yaml": "[{}]", "oidc.yaml": issuer.Config(more), "oidc-ca.crt": string(issuer.CA())}}
	c := Managed.Client(t)
	err := c.Create(t.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		err = c.Update(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Raw sends lines of an HTTP/1.1 request to the hub as they are, and returns the answer.
func (p *Proxied) Raw(t *testing.T, request, body string) (int, string) {
	t.Helper()
	config := AsAdmin(t, p.On)
	config.NextProtos = []string{"http/1.1"}
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&tls.Dialer{Config: secure}).DialContext(t.Context(), "tcp", strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(env.WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: hub\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", request, len(body), body); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}
