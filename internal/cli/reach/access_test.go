package reach_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/output"
)

const inOwnersConfigMap = `the managed cluster does not let user "alice" of the hub do that; its ConfigMap hub-access says what it lets whom do`

// newHubWithRights lets admin into all clusters, alice into cluster1 and cluster2, reader only read, and nobody else in. On clusters, all
// three may list pods in namespace web, and the owner of cluster2 allows to list nothing.
func newHubWithRights(t *testing.T) clitest.Hub {
	t.Helper()
	h := clitest.NewHubWithClusters(t)
	h.Allow(func(user string, what *authorizationv1.ResourceAttributes) bool {
		ours := what.Resource == "managedclusters" && what.Subresource == "proxy" && what.Group == "cluster.open-cluster-management.io"
		return ours && (user == "admin" || user == "alice" && what.Name != "idle" || user == "reader" && what.Verb == "get")
	})
	for _, name := range []string{"cluster1", "cluster2"} {
		api := podsOf("web-0")
		api.Handlers[fakehub.PathAccessReview] = fakehub.ReviewAccess(
			func(what *authorizationv1.ResourceAttributes) (status authorizationv1.SubjectAccessReviewStatus) {
				if status.Denied = name == "cluster2" && what.Verb == "list"; status.Denied {
					status.Reason = inOwnersConfigMap
				}
				status.Allowed = !status.Denied && what.Verb == "list" && what.Resource == "pods" && what.Namespace == "web"
				return status
			})
		warning := ""
		if name == "cluster2" {
			warning = "ConfigMap hub-access of the managed cluster lets you do no more than: get in web"
		}
		api.Handlers[fakehub.PathRulesReview] = fakehub.ReviewRules(warning,
			authorizationv1.ResourceRule{Verbs: []string{"create"}, Resources: []string{"selfsubjectaccessreviews"}},
			authorizationv1.ResourceRule{Verbs: []string{"list", "get"}, Resources: []string{"pods", "services", "configmaps", "events"}})
		h.Connect(name, api)
	}
	return h
}

// CA-43: there is a row for each cluster with what the hub, the cluster and its owner let the user do, and why not.
func TestAccess(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	got := h.Run(t, "", "access", "--as", "alice", "--as-group", "ops", "-n", "web")
	want := `CLUSTER NAME   ENTER                            CONNECTED   RIGHTS                                      NARROWED BY OWNER   PERMISSIONS
cluster1       get,create,update,patch,delete   True        get,list pods,services,configmaps; 1 more   -                   -
cluster2       get,create,update,patch,delete   True        get,list pods,services,configmaps; 1 more   yes                 -
idle           no                               -           -                                           -                   -
`
	if got.Code != 0 || got.Out != want {
		t.Errorf("got %d %s\nwant\n%s", got.Code, got.Out, want)
	}
	for _, words := range []string{"The hub knows the user as alice, and clusters as cluster:hub:alice.", "in namespace web",
		"cluster2: ConfigMap hub-access of the managed cluster lets you do no more than: get in web",
		`idle: the hub does not let user "alice" get, create, update, patch, delete managedclusters/proxy of this cluster`,
		"kubectl create clusterrole enter-idle-alice --verb=get,create,update,patch,delete --resource=managedclusters.cluster.open-cluster-management.io/proxy --resource-name=idle",
		"kubectl create clusterrolebinding enter-idle-alice --clusterrole=enter-idle-alice --user=alice"} {
		if !strings.Contains(got.ErrOut, words) {
			t.Errorf("%q is missing in:\n%s", words, got.ErrOut)
		}
	}
	mine := h.Run(t, "", "access", "--cluster", "idle")
	mine.Succeeds(t, "idle           get,create,update,patch,delete   False")
	if !strings.Contains(mine.ErrOut, "idle: not connected: cluster idle has no tunnel") || !strings.Contains(mine.ErrOut, "as admin") {
		t.Errorf("%+v", mine)
	}
	reader := h.Run(t, "", "access", "--cluster", "cluster1", "--as", "reader")
	reader.Succeeds(t, "cluster1       get     True        -")
	if !strings.Contains(reader.ErrOut, "the hub does not give the verb create") {
		t.Errorf("%+v", reader)
	}
}

// CA-43: what is advised means the user to a shell, too, whatever the name.
func TestAccessAdviceForAShell(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	const user = "o'brien $(id) @example.com"
	got := h.Run(t, "", "access", "--cluster", "idle", "--as", user)
	var script strings.Builder
	script.WriteString("kubectl() { printf '<%s>' \"$@\"; }\n")
	for line := range strings.Lines(got.Out + got.ErrOut) {
		if strings.HasPrefix(line, "  kubectl ") {
			script.WriteString(line + "\n")
		}
	}
	words, err := exec.CommandContext(t.Context(), "sh", "-c", script.String()).CombinedOutput()
	if err != nil || !strings.Contains(string(words), "<--resource-name=idle>") || !strings.HasSuffix(string(words), "<--user="+user+">") {
		t.Errorf("%v: a shell reads %s in:\n%s%s", err, words, got.Out, got.ErrOut)
	}
}

// CA-43: all of it is in YAML and JSON, with the ClusterPermissions that are about the user or a group of it.
func TestAccessAsData(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	permission := func(name, status string, subject rbacv1.Subject) {
		p := &permissionv1alpha1.ClusterPermission{
			TypeMeta:   metav1.TypeMeta{APIVersion: permissionv1alpha1.GroupVersion.String(), Kind: "ClusterPermission"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name},
			Spec: permissionv1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &permissionv1alpha1.ClusterRoleBinding{
				Subject: &subject, RoleRef: &permissionv1alpha1.RoleRef{Kind: "ClusterRole", Name: "view"}}},
			Status: permissionv1alpha1.ClusterPermissionStatus{Conditions: []metav1.Condition{
				{Type: "AppliedRBACManifestWork", Status: metav1.ConditionStatus(status), Message: "namespace web is missing"}}},
		}
		h.Put(t, "/apis/rbac.open-cluster-management.io/v1alpha1/namespaces/cluster1/clusterpermissions/"+name, p)
	}
	permission("alice", "True", rbacv1.Subject{Kind: "User", Name: "cluster:hub:alice"})
	permission("bob", "True", rbacv1.Subject{Kind: "User", Name: "cluster:hub:bob"})
	permission("hub-name", "True", rbacv1.Subject{Kind: "User", Name: "alice"})
	permission("ops", "False", rbacv1.Subject{Kind: "Group", Name: "cluster:hub:ops"})
	for _, format := range []string{"json", "yaml"} {
		got := h.Run(t, "", "access", "--clusters", "cluster1,cluster2", "--as", "alice", "--as-group", "ops", "-o", format)
		content, err := yaml.YAMLToJSON([]byte(got.Out))
		access := &output.Access{}
		if err == nil {
			err = json.Unmarshal(content, access)
		}
		if err != nil || got.ErrOut != "" || len(access.Clusters) != 2 {
			t.Fatalf("%v: %+v", err, got)
		}
		first, second := &access.Clusters[0], &access.Clusters[1]
		if access.User != "alice" || access.OnClusters != "cluster:hub:alice" || access.Namespace != "default" ||
			!slices.Equal(access.Groups, []string{"ops", "system:authenticated"}) {
			t.Errorf("%s is about %+v", format, access)
		}
		if len(first.Rights) != 2 || len(first.Narrowed) != 0 || !slices.Equal(first.Permissions, []output.Permission{
			{Name: "alice", Applied: true, Message: "namespace web is missing"}, {Name: "ops", Message: "namespace web is missing"}}) ||
			first.Reason != "ClusterPermission ops of the hub, which is about the user, is not on the cluster: namespace web is missing" {
			t.Errorf("%s: %+v", format, first)
		}
		if len(second.Narrowed) != 1 || second.Connected != "True" || second.Permissions != nil {
			t.Errorf("%s: %+v", format, second)
		}
	}
	h.Run(t, "", "access", "--cluster", "cluster1", "--as", "alice", "--as-group", "ops").Succeeds(t, "alice,ops (not applied)")
	succeedsNot(t, h.Run(t, "", "access", "get", "pods", "--cluster", "cluster1", "--as", "alice", "--as-group", "ops"),
		"ClusterPermission ops of the hub, which is about the user, is not on the cluster: namespace web is missing")
}

// succeedsNot fails the test unless the command says no, and why.
func succeedsNot(t *testing.T, r clitest.Result, words ...string) {
	t.Helper()
	if r.Code != 1 || strings.Contains(r.ErrOut, "Error:") {
		t.Errorf("exit code %d: %s", r.Code, r.ErrOut)
	}
	for _, word := range words {
		if !strings.Contains(r.Out+r.ErrOut, word) {
			t.Errorf("%q is missing in:\n%s%s", word, r.Out, r.ErrOut)
		}
	}
}

// CA-43: the answer is yes, or no with what stands in the way first and what to do about it.
func TestAccessAnswers(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	h.Put(t, clitest.ClustersPath+"/noright", clitest.AcceptedCluster("noright"))
	slow := podsOf()
	slow.Handlers["/api/v1"] = fakehub.Refuse(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the cluster does not answer")
	h.Connect("noright", slow)
	for command, says := range map[string][]string{
		"list pods -n web --cluster cluster1":                      nil,
		"list pod/web-0 -n web --cluster cluster1 --as alice":      nil,
		"list pods -n other --cluster cluster1 --as alice":         {"no        cluster", `no role on the cluster lets user "cluster:hub:alice" list pods in namespace other`, "A ClusterPermission in namespace cluster1"},
		"create pods/web-0 --subresource exec --cluster cluster1":  {"create pods/exec web-0 in namespace default"},
		"delete deploy -n web --cluster cluster1 --as alice":       {"delete deployments.apps in namespace web"},
		"list pods -n web --clusters cluster1,cluster2 --as alice": {"cluster1       yes", "cluster2       no        owner", inOwnersConfigMap, "The owner of the cluster decides"},
		"delete pods -n web --cluster idle --as alice": {"no        hub", `does not let user "alice" delete managedclusters/proxy`,
			"--verb=delete", "--user=alice"},
		"list pods -n web --cluster idle":                                  {"no        connection", "cluster idle has no tunnel", "capstan proxy health"},
		"list pods --cluster noright":                                      {"no        connection", "the cluster does not answer"},
		"list things --cluster cluster1":                                   {"no        cluster", `it serves no "things"`},
		"* pods -n web --cluster cluster1 --as reader":                     {`does not let user "reader" create, update, patch, delete`},
		"list pods --cluster cluster1 --as reader":                         nil,
		"get pods/web-0 --cluster cluster1 --as reader":                    nil,
		"get pods/gone --cluster cluster1 --as reader":                     nil,
		"get pods --cluster cluster1 --as reader":                          {"no        hub", "the rights on the cluster are not known", "give the verb create"},
		"list pods --all-clusters --as reader -n web":                      {"cluster1       yes", "idle           no        connection"},
		"create pods --cluster cluster1 --as nobody --as-group everything": {`does not let user "nobody" create`},
	} {
		got := h.Run(t, "", append([]string{"access"}, strings.Fields(command)...)...)
		if says == nil {
			if got.Code != 0 || got.ErrOut != "" || !strings.Contains(got.Out, "yes") {
				t.Errorf("%s: %+v", command, got)
			}
			continue
		}
		succeedsNot(t, got, says...)
	}
	got := h.Run(t, "", "access", "list", "pods", "-n", "web", "--clusters", "cluster1,cluster2", "--as", "alice", "-o", "json")
	answers := &output.AccessReviews{}
	if err := json.Unmarshal([]byte(got.Out), answers); err != nil || got.Code != 1 || got.ErrOut != "" {
		t.Fatalf("%v: %+v", err, got)
	}
	if answers.User != "alice" || answers.Verb != "list" || answers.Namespace != "web" || len(answers.Clusters) != 2 ||
		!answers.Clusters[0].Allowed || answers.Clusters[1].By != output.ByOwner || answers.Clusters[1].Next == "" {
		t.Errorf("%+v", answers)
	}
}

// CA-43: a read-only user is told of what the cluster refuses by a request that the cluster refuses.
func TestAccessTries(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	for name, message := range map[string]string{"cluster1": `pods is forbidden: User "cluster:hub:reader" cannot list`, "cluster2": inOwnersConfigMap} {
		api := podsOf()
		api.Handlers["/api/v1/namespaces/web/pods"] = fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, message)
		h.Connect(name, api)
	}
	succeedsNot(t, h.Run(t, "", "access", "list", "pods", "-n", "web", "--clusters", "cluster1,cluster2", "--as", "reader"),
		`no        cluster`, `cannot list`, "no        owner", "The owner of the cluster decides")
}

// CA-43: a hub that lets nothing through to API servers is no cluster that refuses, and nobody lacks a right.
func TestAccessWithServicesOnly(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	h.Connect("cluster1", fakehub.RefuseCluster(http.StatusForbidden, metav1.StatusReasonForbidden, ""))
	got := h.Run(t, "", "access", "list", "pods", "-n", "web", "--clusters", "cluster1", "--as", "reader")
	succeedsNot(t, got, "no        connection", "An administrator of the hub decides what it lets through")
	if strings.Contains(got.Out+got.ErrOut, "for the right") {
		t.Errorf("%+v", got)
	}
}

// CA-43: a question without clusters is answered with one, as the error advises.
func TestAdviceToChooseClusters(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	refused := h.Run(t, "", "access", "list", "pods", "-n", "web")
	refused.Fails(t)
	h.Follow(t, refused, "access list pods --cluster CLUSTER", "CLUSTER", "cluster1 -n web").Succeeds(t, "yes")
}

// CA-43
func TestAccessBadCommandLine(t *testing.T) {
	t.Parallel()
	h := newHubWithRights(t)
	for command, says := range map[string][]string{
		"list":                             {"want a verb and a resource"},
		"list pods":                        {"say on which clusters", "capstan access list pods --cluster CLUSTER"},
		"list pods x -c cluster1":          {"3 arguments given"},
		"list pods/exec/x -c cluster1":     {"RESOURCE/NAME", "--subresource"},
		"list / -c cluster1":               {"RESOURCE"},
		"--as-group ops":                   {"--as-group: needs --as"},
		"--subresource log":                {"--subresource"},
		"-n A_":                            {"--namespace"},
		"list pods -c cluster1 -o wide":    {"table, json, yaml"},
		"--cluster c --clusterset default": {"clusterset"},
	} {
		h.Run(t, "", append([]string{"access"}, strings.Fields(command)...)...).Fails(t, says...)
	}
	h.Handle("POST "+fakehub.PathWhoAmI, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
		`users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the cluster scope`))
	h.Run(t, "", "access", "--as", "bob").Fails(t, "ask who the user is", "cannot impersonate", "lacks this permission")
	h.Run(t, "", "access", "--help").Succeeds(t, "--as-group", "capstan access list pods")
}
