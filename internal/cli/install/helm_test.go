package install_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-11, CA-14, CA-15, CA-41: nothing that --force has taken over says any more that it is of a release of Helm, so that the next run needs
// no --force. The record of the release stays, and is named with the command that deletes it.
func TestForceTakesFromHelm(t *testing.T) {
	t.Parallel()
	write := inDir(t)
	credentials := []string{"--image-pull-credential-file", write("config.json", "{}")}
	hub := append([]string{"init", "--cluster-manager-values-file",
		write("hub.yaml", "{createBootstrapToken: true, podDisruptionBudget: {enabled: true}}")}, credentials...)
	singleton := []string{"init", "--singleton", "--singleton-name", "one", "--set", "podDisruptionBudget.enabled=true",
		"--set", "route.enabled=true", "--set", "metrics.serviceMonitor.enabled=true"}
	agent := joinCommand(t, newHubToJoin(t), append(credentials, "--klusterlet-values-file",
		write("agent.yaml", "{replicaCount: 2, podDisruptionBudget: {enabled: true}, priorityClassName: agents}"))...)
	upgrade := append([]string{"upgrade", "clustermanager", "--values-file",
		write("operator.yaml", "podDisruptionBudget: {enabled: true}")}, credentials...)
	operator := "ClusterRole ClusterRoleBinding CustomResourceDefinition Deployment PodDisruptionBudget Secret ServiceAccount "
	for name, test := range map[string]struct {
		install, run []string
		namespace    string
		custom       string // the path of what the command changes, and does not apply
		kinds        string
	}{
		"init": {hub, hub, "open-cluster-management", "", operator + "ClusterManager Namespace"},
		"init --singleton": {singleton, singleton, "one", "", "ClusterRole ClusterRoleBinding Deployment Namespace PersistentVolumeClaim " +
			"PodDisruptionBudget Role RoleBinding Route Secret Service ServiceAccount ServiceMonitor"},
		"join":    {agent, agent, "open-cluster-management", "", operator + "Klusterlet Namespace PriorityClass"},
		"upgrade": {hub, upgrade, "open-cluster-management", managersPath + "cluster-manager", operator + "ClusterManager"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newClusterForAllKinds(t)
			h.Run(t, "", test.install...).Succeeds(t)
			taken := appliedBy(t, h, test.run...)
			if test.custom != "" {
				taken = append(taken, test.custom)
			}
			wantKinds(t, h, taken, test.kinds)
			markAsHelms(t, h, "ocm", test.namespace, taken...)
			records := test.namespace + "/secrets/sh.helm.release.v1."
			putRecords(t, h, "ocm", records+"ocm.v1", records+"ocm.v2")
			putRecords(t, h, "other", records+"other.v1")

			h.Run(t, "", test.run...).Fails(t, "is kept by Helm (release ocm in namespace "+test.namespace+")", "--force")
			forced := h.Run(t, "", append(slices.Clone(test.run), "--force")...)
			forced.Succeeds(t)
			for _, path := range taken {
				if marks := marksOfHelm(t, h, path); len(marks) != 0 {
					t.Errorf("%s has %v", path, marks)
				}
			}
			for _, says := range []string{"in the Secrets sh.helm.release.v1.ocm.v1, sh.helm.release.v1.ocm.v2.",
				"kubectl delete secrets --namespace " + test.namespace + " --selector owner=helm,name=ocm\n"} {
				if !strings.Contains(forced.ErrOut, says) {
					t.Errorf("%q is missing in:\n%s", says, forced.ErrOut)
				}
			}
			if path := "/api/v1/namespaces/" + records + "ocm.v2"; !h.Has(path) {
				t.Errorf("%s is gone", path)
			}
			again := h.Run(t, "", test.run...)
			again.Succeeds(t)
			if strings.Contains(again.ErrOut, "Helm still has") {
				t.Errorf("the next run says\n%s", again.ErrOut)
			}
		})
	}
}

// CA-11, CA-15: what is of another release stays so, and what was interrupted is done by the same command. Without a record of the release
// nothing is said of one. A CustomResourceDefinition is taken over whatever release it names.
func TestForceTakesOneReleaseFromHelm(t *testing.T) {
	t.Parallel()
	const (
		shared     = "/api/v1/namespaces/open-cluster-management"
		binding    = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/klusterlet"
		definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/klusterlets.operator.open-cluster-management.io"
		deployment = clitest.OperatorsPath + "klusterlet"
	)
	h, args := newClusterForAllKinds(t), joinCommand(t, newHubToJoin(t))
	h.Run(t, "", args...).Succeeds(t)
	markAsHelms(t, h, "ocm", "open-cluster-management", appliedBy(t, h, args...)...)
	markAsHelms(t, h, "hub", "open-cluster-management", shared)
	markAsHelms(t, h, "klusterlet", "open-cluster-management", definition)
	h.Handle("PATCH "+binding, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.MergePatchType) {
			fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "not now")(w, r)
			return
		}
		h.RespondLocked(w, binding)
	})
	forced := append(slices.Clone(args), "--force")
	h.Run(t, "", forced...).Fails(t, "ClusterRoleBinding klusterlet", "not now")
	h.Handle("PATCH "+binding, nil)
	if len(marksOfHelm(t, h, deployment)) == 0 {
		t.Error("an interrupted run has taken over the Deployment, by which the next one finds the release")
	}
	done := h.Run(t, "", forced...)
	done.Succeeds(t)
	if strings.Contains(done.ErrOut, "Helm still has") {
		t.Errorf("there is no record of a release, and it says\n%s", done.ErrOut)
	}
	for path, want := range map[string]int{shared: 3, binding: 0, definition: 0, deployment: 0} {
		if left := marksOfHelm(t, h, path); len(left) != want {
			t.Errorf("%s has %v, want %d", path, left, want)
		}
	}
}

// CA-11, CA-15: who may not read Helm's record of the release learns how to find it, and all else is done.
func TestForceCannotReadHelmsRecord(t *testing.T) {
	t.Parallel()
	const secrets = "/api/v1/namespaces/elsewhere/secrets"
	h, args := newClusterForAllKinds(t), joinCommand(t, newHubToJoin(t))
	h.Run(t, "", args...).Succeeds(t)
	markAsHelms(t, h, "ocm", "elsewhere", appliedBy(t, h, args...)...)
	putRecords(t, h, "ocm", "elsewhere/secrets/sh.helm.release.v1.ocm.v1")
	putRecords(t, h, "other", "elsewhere/secrets/sh.helm.release.v1.other.v1")
	h.Handle("GET "+secrets, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "secrets is forbidden"))
	forced := h.Run(t, "", append(slices.Clone(args), "--force")...)
	forced.Succeeds(t, "capstan accept --clusters c1")
	for _, says := range []string{"release ocm in namespace elsewhere", "secrets is forbidden"} {
		if !strings.Contains(forced.ErrOut, says) {
			t.Errorf("%q is missing in:\n%s", says, forced.ErrOut)
		}
	}
	if marks := marksOfHelm(t, h, clitest.OperatorsPath+"klusterlet"); len(marks) != 0 {
		t.Errorf("the Deployment has %v", marks)
	}
	h.Handle("GET "+secrets, nil) // for somebody who may read them
	advised := regexp.MustCompile(`kubectl get secrets --namespace (\S+) --selector (\S+)\n`).FindStringSubmatch(forced.ErrOut)
	if advised == nil {
		t.Fatalf("nothing says how the record is found:\n%s", forced.ErrOut)
	}
	records, of := &corev1.SecretList{}, h.Client(t).Client(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(advised[1])
	if err := of.List(t.Context(), metav1.ListOptions{LabelSelector: advised[2]}, records); err != nil || len(records.Items) != 1 {
		t.Errorf("%q finds %d Secrets: %v", advised[0], len(records.Items), err)
	}
}

// newClusterForAllKinds is a cluster that serves all that a hub, a standalone hub or an agent can consist of.
func newClusterForAllKinds(t *testing.T) clitest.Hub {
	t.Helper()
	h := newClusterForHub(t)
	serveVolumes(h)
	serve(h, "/apis/scheduling.k8s.io/v1", "priorityclasses PriorityClass")
	serve(h, "/apis/route.openshift.io/v1", "routes Route")
	serve(h, "/apis/monitoring.coreos.com/v1", "servicemonitors ServiceMonitor")
	return h
}

// appliedBy are the paths of the objects on a cluster that a command applies.
func appliedBy(t *testing.T, h clitest.Hub, args ...string) []string {
	t.Helper()
	dryRun := h.Run(t, "", append(slices.Clone(args), "--dry-run")...)
	dryRun.Succeeds(t)
	objects := objectsOf(t, dryRun)
	return slices.DeleteFunc(h.Paths(), func(path string) bool {
		found := metadataAt(t, h, path)
		return objects[found.Kind+"/"+found.Name] == nil
	})
}

func wantKinds(t *testing.T, h clitest.Hub, paths []string, want string) {
	t.Helper()
	var kinds []string
	for _, path := range paths {
		kinds = append(kinds, metadataAt(t, h, path).Kind)
	}
	slices.Sort(kinds)
	wanted := slices.Sorted(strings.FieldsSeq(want))
	if kinds = slices.Compact(kinds); !slices.Equal(kinds, wanted) {
		t.Errorf("the objects are of the kinds %v, want %v", kinds, wanted)
	}
}

func metadataAt(t *testing.T, h clitest.Hub, path string) *metav1.PartialObjectMetadata {
	t.Helper()
	found := &metav1.PartialObjectMetadata{}
	h.Get(t, path, found)
	return found
}

// The annotations and the label by which Helm takes an object for one of a release.
const (
	releaseName      = "meta.helm.sh/release-name"
	releaseNamespace = "meta.helm.sh/release-namespace"
	managedBy        = "app.kubernetes.io/managed-by"
)

func markAsHelms(t *testing.T, h clitest.Hub, release, namespace string, paths ...string) {
	t.Helper()
	client := h.Client(t).Raw()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q},"labels":{%q:"Helm"}}}`, releaseName, release,
		releaseNamespace, namespace, managedBy)
	for _, path := range paths {
		if err := client.Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(t.Context()).Error(); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// marksOfHelm are those of the three that an object has.
func marksOfHelm(t *testing.T, h clitest.Hub, path string) (found []string) {
	t.Helper()
	metadata := metadataAt(t, h, path)
	for _, key := range []string{releaseName, releaseNamespace} {
		if _, has := metadata.Annotations[key]; has {
			found = append(found, key)
		}
	}
	if metadata.Labels[managedBy] == "Helm" {
		found = append(found, managedBy)
	}
	return found
}

// putRecords adds Secrets, each named by its path below the namespaces, in which Helm keeps what it knows of a release.
func putRecords(t *testing.T, h clitest.Hub, release string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		namespace, name, _ := strings.Cut(path, "/secrets/")
		h.Put(t, "/api/v1/namespaces/"+path, &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"owner": "helm", "name": release}},
			Type:       "helm.sh/release.v1",
		})
	}
}
