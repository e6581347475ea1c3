package examples_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// example is what the files of a directory have of an add-on without code.
type example struct {
	templates    []addonv1beta1.AddOnTemplate
	clusterRoles map[string][]rbacv1.PolicyRule
	bound        []string // the ClusterRoles that the manager of such add-ons has in all namespaces
}

// A hub in a cluster may bind the roles of an AddOnTemplate only if it is given the right to: each example of one brings it.
func TestHubMayBindRoles(t *testing.T) {
	t.Parallel()
	examples := readExamples(t)
	permissions := 0
	for directory, of := range examples {
		for i := range of.templates {
			for _, role := range rolesOf(&of.templates[i]) {
				permissions++
				if role.Kind == "ClusterRole" && of.clusterRoles[role.Name] == nil {
					t.Errorf("%s: AddOnTemplate %s binds ClusterRole %s, which is not there", directory, of.templates[i].Name, role.Name)
				}
				if !slices.ContainsFunc(of.bound, func(name string) bool { return allowBind(of.clusterRoles[name], role) }) {
					t.Errorf("%s: the hub may not bind %s %s of AddOnTemplate %s: give ServiceAccount %s a ClusterRole with the verb bind",
						directory, role.Kind, role.Name, of.templates[i].Name, fleet.ServiceAccountAddOnManager)
				}
			}
		}
	}
	if permissions < 3 {
		t.Errorf("the examples have %d permissions; they had 3", permissions)
	}
}

// readExamples reads all examples, with what a hub in a cluster gives its add-on manager in each.
func readExamples(t *testing.T) map[string]*example {
	t.Helper()
	rights := &example{clusterRoles: map[string][]rbacv1.PolicyRule{}}
	rights.read(t, filepath.Join("..", "hub", "rights.yaml"))
	examples := map[string]*example{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		directory := filepath.Dir(path)
		if examples[directory] == nil {
			examples[directory] = &example{clusterRoles: map[string][]rbacv1.PolicyRule{}, bound: slices.Clone(rights.bound)}
			for name, rules := range rights.clusterRoles {
				examples[directory].clusterRoles[name] = rules
			}
		}
		examples[directory].read(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return examples
}

func (e *example) read(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var kind metav1.TypeMeta
		decode(t, path, document, &kind)
		switch kind.Kind {
		case "AddOnTemplate":
			var template addonv1beta1.AddOnTemplate
			decode(t, path, document, &template)
			e.templates = append(e.templates, template)
		case "ClusterRole":
			var role rbacv1.ClusterRole
			decode(t, path, document, &role)
			e.clusterRoles[role.Name] = role.Rules
		case "ClusterRoleBinding":
			var binding rbacv1.ClusterRoleBinding
			decode(t, path, document, &binding)
			manager := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: fleet.NamespaceHub, Name: fleet.ServiceAccountAddOnManager}
			if slices.Contains(binding.Subjects, manager) {
				e.bound = append(e.bound, binding.RoleRef.Name)
			}
		}
	}
}

func decode(t *testing.T, path, document string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(document), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// rolesOf are the roles that a template has bound for its agents.
func rolesOf(template *addonv1beta1.AddOnTemplate) (roles []rbacv1.RoleRef) {
	for _, registration := range template.Spec.Registration {
		if registration.KubeClient == nil {
			continue
		}
		for _, permission := range registration.KubeClient.HubPermissions {
			if permission.CurrentCluster != nil {
				roles = append(roles, rbacv1.RoleRef{Kind: "ClusterRole", Name: permission.CurrentCluster.ClusterRoleName})
			}
			if permission.SingleNamespace != nil {
				roles = append(roles, permission.SingleNamespace.RoleRef)
			}
		}
	}
	return roles
}

// allowBind tells whether rules allow to bind a role.
func allowBind(rules []rbacv1.PolicyRule, role rbacv1.RoleRef) bool {
	resource := "clusterroles"
	if role.Kind == "Role" {
		resource = "roles"
	}
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, "bind") && slices.Contains(rule.APIGroups, rbacv1.GroupName) &&
			slices.Contains(rule.Resources, resource) && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, role.Name))
	})
}
