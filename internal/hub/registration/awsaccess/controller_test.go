package awsaccess_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/awsaccess"
	"github.com/capstan-io/capstan/internal/hub/registration/awsaccess/awstest"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const account = "123456789012"

// scene is a hub with its account in AWS.
type scene struct {
	t          *testing.T
	aws        *awstest.AWS
	api        client.Client
	events     *events.FakeRecorder
	controller *awsaccess.Controller
	pair       eks.Pair
}

func newScene(t *testing.T, clusters ...*clusterv1.ManagedCluster) *scene {
	t.Helper()
	s := &scene{t: t, aws: awstest.Start(t, account), events: events.NewFakeRecorder(100), pair: pairOf("spoke1")}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&clusterv1.ManagedCluster{})
	for _, cluster := range clusters {
		builder = builder.WithObjects(cluster)
	}
	s.api = builder.Build()
	access, err := awsaccess.NewAccess(t.Context(), s.pair.Hub, map[string]string{"team": "fleet"}, s.aws.Config()...)
	if err != nil {
		t.Fatal(err)
	}
	s.controller = awsaccess.New(s.api, s.events, awsaccess.Options{Access: access, Clock: clock.RealClock{}})
	return s
}

func pairOf(managed string) eks.Pair {
	return eks.Pair{Hub: eks.Cluster{Region: "us-west-2", Account: account, Name: "hub1"},
		Managed: eks.Cluster{Region: "eu-central-1", Account: "210987654321", Name: managed}}
}

// accepted is a cluster that the hub has let in.
func accepted(name string, pair eks.Pair) *clusterv1.ManagedCluster {
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: pair.Annotations(),
		Finalizers: []string{fleet.FinalizerManagedCluster}}}
	cluster.Spec.HubAcceptsClient = true
	cluster.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue,
		Reason: fleet.ReasonHubClusterAdminAccepted}}
	return cluster
}

func (s *scene) reconcile(name string) error {
	s.t.Helper()
	_, err := s.controller.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
	return err
}

func (s *scene) mustReconcile(name string) {
	s.t.Helper()
	if err := s.reconcile(name); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) get(name string) *clusterv1.ManagedCluster {
	s.t.Helper()
	cluster := &clusterv1.ManagedCluster{}
	if err := s.api.Get(s.t.Context(), client.ObjectKey{Name: name}, cluster); err != nil {
		s.t.Fatal(err)
	}
	return cluster
}

func (s *scene) wantCondition(name, reason, message string) {
	s.t.Helper()
	got := meta.FindStatusCondition(s.get(name).Status.Conditions, fleet.ConditionAWSAccess)
	if got == nil || got.Reason != reason || !strings.Contains(got.Message, message) ||
		(got.Status == metav1.ConditionTrue) != (reason == fleet.ReasonAWSAccessGranted) {
		s.t.Errorf("condition %+v, want %s with %q", got, reason, message)
	}
}

func (s *scene) wantGone() {
	s.t.Helper()
	if role, found := s.aws.Role(s.pair.HubRole()); found {
		s.t.Errorf("there is the role %+v", role)
	}
	if entry, found := s.aws.Entry(s.pair.HubRole()); found {
		s.t.Errorf("there is the access entry %+v", entry)
	}
}

func (s *scene) edit(name string, edit func(*clusterv1.ManagedCluster)) {
	s.t.Helper()
	cluster := s.get(name)
	edit(cluster)
	status := cluster.DeepCopy()
	if err := s.api.Update(s.t.Context(), cluster); err != nil {
		s.t.Fatal(err)
	}
	status.ResourceVersion = cluster.ResourceVersion
	if err := s.api.Status().Update(s.t.Context(), status); err != nil {
		s.t.Fatal(err)
	}
}

// RG-52, CM-11: an accepted cluster has its role and its access entry, as its own user and group; what is right is left alone, and what is
// not is repaired.
func TestGrant(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")))
	s.mustReconcile("c1")
	s.mustReconcile("c1")
	if got := s.aws.Writes(); !slices.Equal(got, []string{"CreateRole", "CreateAccessEntry"}) {
		t.Errorf("requests %q", got)
	}
	role, _ := s.aws.Role(s.pair.HubRole())
	entry, _ := s.aws.Entry(s.pair.HubRole())
	trust, err := s.pair.TrustPolicy()
	if err != nil || role.Trust != trust || role.Tags["team"] != "fleet" || role.Tags["managed_cluster_name"] != "spoke1" {
		t.Errorf("role %+v, %v", role, err)
	}
	if entry.Username != "open-cluster-management:c1" || !slices.Equal(entry.KubernetesGroups, []string{"open-cluster-management:c1"}) ||
		entry.ClusterName != "hub1" || entry.Tags["team"] != "fleet" {
		t.Errorf("access entry %+v", entry)
	}
	s.wantCondition("c1", fleet.ReasonAWSAccessGranted, s.pair.HubRoleARN())
	if event := <-s.events.Events; !strings.Contains(event, "EKSRegistrationRequestApproved") || len(s.events.Events) > 0 {
		t.Errorf("event %s, and %d more", event, len(s.events.Events))
	}
	arn := s.pair.HubRoleARN()
	for name, test := range map[string]struct {
		change func(map[string]awstest.Role, map[string]awstest.Entry)
		want   []string
	}{
		"trust": {func(roles map[string]awstest.Role, _ map[string]awstest.Entry) {
			roles[s.pair.HubRole()] = awstest.Role{Trust: `{"Version":"2012-10-17"}`, Tags: roles[s.pair.HubRole()].Tags}
		}, []string{"UpdateAssumeRolePolicy"}},
		"tags": {func(roles map[string]awstest.Role, entries map[string]awstest.Entry) {
			delete(roles[s.pair.HubRole()].Tags, "team")
			delete(entries[arn].Tags, "team")
		}, []string{"TagRole", "TagResource"}},
		"groups": {func(_ map[string]awstest.Role, entries map[string]awstest.Entry) {
			entry := entries[arn]
			entry.KubernetesGroups = []string{"system:masters"}
			entries[arn] = entry
		}, []string{"UpdateAccessEntry"}},
		"entry": {func(_ map[string]awstest.Role, entries map[string]awstest.Entry) { delete(entries, arn) }, []string{"CreateAccessEntry"}},
		"role": {func(roles map[string]awstest.Role, _ map[string]awstest.Entry) { delete(roles, s.pair.HubRole()) },
			[]string{"DeleteAccessEntry", "CreateRole", "CreateAccessEntry"}},
	} {
		s.aws.Change(test.change)
		s.mustReconcile("c1")
		s.mustReconcile("c1")
		if got := s.aws.Writes(); !slices.Equal(got, test.want) {
			t.Errorf("%s: requests %q, want %q", name, got, test.want)
		}
	}
}

// RG-52: a cluster that is not accepted, or whose annotations are not those of a cluster and this hub, gets nothing, and what it had is
// gone.
func TestRefuse(t *testing.T) {
	t.Parallel()
	waiting := accepted("waiting", pairOf("spoke1"))
	waiting.Spec.HubAcceptsClient, waiting.Status.Conditions, waiting.Finalizers = false, nil, nil
	s := newScene(t, waiting, accepted("c1", pairOf("spoke1")))
	s.mustReconcile("waiting")
	s.wantGone()
	s.mustReconcile("c1")
	s.edit("c1", func(c *clusterv1.ManagedCluster) {
		c.Annotations[fleet.AnnotationManagedClusterARN] = pairOf("spoke2").Managed.ARN()
	})
	s.mustReconcile("c1")
	s.wantGone()
	s.wantCondition("c1", fleet.ReasonAWSIdentityRefused, pairOf("spoke2").Suffix())
	s.edit("c1", func(c *clusterv1.ManagedCluster) {
		c.Annotations[fleet.AnnotationManagedClusterARN] = "arn:aws:iam::1:role/admin"
	})
	s.mustReconcile("c1")
	s.wantCondition("c1", fleet.ReasonAWSIdentityRefused, "is not the ARN of an EKS cluster")
}

// RG-52: nobody takes over the access of a cluster by a second ManagedCluster with its ARN.
func TestSecondClusterOfSameARN(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")), accepted("c2", pairOf("spoke1")))
	s.mustReconcile("c1")
	s.aws.Writes()
	s.mustReconcile("c2")
	s.mustReconcile("c1")
	if got := s.aws.Writes(); len(got) > 0 {
		t.Errorf("requests %q", got)
	}
	s.wantCondition("c2", fleet.ReasonAWSIdentityRefused, "is ManagedCluster c1 already")
	// c2 goes without taking anything from c1, and c1 goes for c2.
	s.edit("c2", func(c *clusterv1.ManagedCluster) { delete(c.Annotations, fleet.AnnotationManagedClusterARN) })
	s.mustReconcile("c2")
	if entry, _ := s.aws.Entry(s.pair.HubRole()); entry.Username != "open-cluster-management:c1" {
		t.Errorf("access entry %+v", entry)
	}
	s.edit("c2", func(c *clusterv1.ManagedCluster) { c.Annotations = s.pair.Annotations() })
	s.edit("c1", func(c *clusterv1.ManagedCluster) { c.Annotations, c.Spec.HubAcceptsClient = nil, false })
	s.mustReconcile("c2")
	if entry, _ := s.aws.Entry(s.pair.HubRole()); entry.Username != "open-cluster-management:c2" {
		t.Errorf("access entry %+v", entry)
	}
}

// RG-52: of two clusters with the same role, be they the same cluster or of the same account and name, the second one gets access by itself
// once the first one has none any more.
func TestHolderLosesAccess(t *testing.T) {
	t.Parallel()
	elsewhere := pairOf("spoke1")
	elsewhere.Managed.Region = "eu-west-1"
	for name, holder := range map[string]struct {
		pair eks.Pair
		want string
	}{
		"the same cluster":             {pairOf("spoke1"), "is ManagedCluster c1 already"},
		"of the same account and name": {elsewhere, "as account and name are the same"},
	} {
		for how, lose := range map[string]func(*clusterv1.ManagedCluster){
			"cut off": func(c *clusterv1.ManagedCluster) {
				c.Labels = map[string]string{fleet.LabelCutOff: fleet.LabelTrue}
				c.Spec.HubAcceptsClient = false
			},
			"corrected": func(c *clusterv1.ManagedCluster) { maps.Copy(c.Annotations, pairOf("spoke2").Annotations()) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, accepted("c1", holder.pair), accepted("c2", pairOf("spoke1")))
				s.mustReconcile("c1")
				result, err := s.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "c2"}})
				if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Minute {
					t.Errorf("looked at again after %v, %v", result.RequeueAfter, err)
				}
				s.wantCondition("c2", fleet.ReasonAWSIdentityRefused, holder.want)
				s.edit("c1", lose)
				s.mustReconcile("c1")
				s.mustReconcile("c2")
				s.wantCondition("c2", fleet.ReasonAWSAccessGranted, "")
			})
		}
	}
}

// RG-52: without a record of who has the role, as hubs of the original have none, an accepted cluster keeps its access.
func TestHolderWithoutRecord(t *testing.T) {
	t.Parallel()
	elsewhere := pairOf("spoke1")
	elsewhere.Managed.Region = "eu-west-1"
	s := newScene(t, accepted("c1", elsewhere), accepted("c2", pairOf("spoke1")))
	s.mustReconcile("c1")
	s.edit("c1", func(c *clusterv1.ManagedCluster) { delete(c.Annotations, fleet.AnnotationAWSRole) })
	s.mustReconcile("c2")
	s.wantCondition("c2", fleet.ReasonAWSIdentityRefused, "as account and name are the same")
}

// RG-52: an access entry by the bare name of the cluster, as hubs of the original make them, becomes one by a name that no person has.
func TestEntryOfBareName(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")))
	s.mustReconcile("c1")
	s.aws.Change(func(_ map[string]awstest.Role, entries map[string]awstest.Entry) {
		entry := entries[s.pair.HubRoleARN()]
		entry.Username = "c1"
		entries[s.pair.HubRoleARN()] = entry
	})
	s.aws.Writes()
	s.mustReconcile("c1")
	if entry, _ := s.aws.Entry(s.pair.HubRole()); entry.Username != "open-cluster-management:c1" {
		t.Errorf("access entry %+v", entry)
	}
	if got := s.aws.Writes(); !slices.Equal(got, []string{"UpdateAccessEntry"}) {
		t.Errorf("requests %q", got)
	}
}

// RG-52: what AWS refuses is said, in the same words each time, and tried again.
func TestFail(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")))
	s.aws.Refuse("CreateRole")
	if err := s.reconcile("c1"); err == nil {
		t.Error("no error")
	}
	s.wantCondition("c1", fleet.ReasonAWSRequestFailed, "create IAM role "+s.pair.HubRole())
	before := s.get("c1").ResourceVersion
	if err := s.reconcile("c1"); err == nil || s.get("c1").ResourceVersion != before {
		t.Errorf("error %v, written again: %v", err, s.get("c1").ResourceVersion != before)
	}
	s.aws.Refuse("")
	s.mustReconcile("c1")
	s.wantCondition("c1", fleet.ReasonAWSAccessGranted, "")
}

// RG-52: while AWS does not say what it has, the hub tries again, and clusters that have access are not said to have none.
func TestFailToCompare(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"DescribeAccessEntry", "GetRole"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, accepted("c1", pairOf("spoke1")), accepted("c2", pairOf("spoke2")))
			s.mustReconcile("c1")
			before := s.get("c1").ResourceVersion
			s.aws.Refuse(refused)
			if err := s.reconcile("c1"); err == nil {
				t.Error("no error")
			}
			if after := s.get("c1").ResourceVersion; after != before {
				t.Error("the cluster is written")
			}
			s.wantCondition("c1", fleet.ReasonAWSAccessGranted, "")
			if err := s.reconcile("c2"); err == nil {
				t.Error("no error of a cluster without access")
			}
			s.wantCondition("c2", fleet.ReasonAWSRequestFailed, "")
			// What the condition says is about another cluster of EKS now.
			s.edit("c1", func(c *clusterv1.ManagedCluster) { maps.Copy(c.Annotations, pairOf("spoke3").Annotations()) })
			if err := s.reconcile("c1"); err == nil {
				t.Error("no error of another cluster of EKS")
			}
			s.wantCondition("c1", fleet.ReasonAWSRequestFailed, "")
		})
	}
}

// RG-52: a cluster whose access entry has gone has no access, whatever else AWS does not say.
func TestFailWithoutEntry(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")))
	s.mustReconcile("c1")
	s.aws.Change(func(_ map[string]awstest.Role, entries map[string]awstest.Entry) {
		delete(entries, s.pair.HubRoleARN())
	})
	s.aws.Refuse("GetRole")
	if err := s.reconcile("c1"); err == nil {
		t.Error("no error")
	}
	s.wantCondition("c1", fleet.ReasonAWSRequestFailed, "get IAM role")
}

// RG-52: wherever the hub is interrupted as it makes a role anew, it deletes the access entry of the former role: that does not let in the
// agent, which has the new one.
func TestFormerRole(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"DeleteAccessEntry", "CreateRole", "CreateAccessEntry"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, accepted("c1", pairOf("spoke1")))
			s.mustReconcile("c1")
			s.aws.Change(func(roles map[string]awstest.Role, _ map[string]awstest.Entry) { delete(roles, s.pair.HubRole()) })
			s.aws.Writes()
			s.aws.Refuse(refused)
			if err := s.reconcile("c1"); err == nil {
				t.Error("no error")
			}
			s.wantCondition("c1", fleet.ReasonAWSRequestFailed, "")
			s.aws.Refuse("")
			s.mustReconcile("c1")
			if got := s.aws.Writes(); !slices.Equal(got, []string{"DeleteAccessEntry", "CreateRole", "CreateAccessEntry"}) {
				t.Errorf("requests %q", got)
			}
			s.wantCondition("c1", fleet.ReasonAWSAccessGranted, "")
		})
	}
}

// RG-52: a denied cluster keeps its access until it has finished its works, and one that is cut off loses it at once.
func TestDeny(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")))
	s.mustReconcile("c1")
	remaining := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: fleet.RemainingWorksRole("c1")}}
	if err := s.api.Create(t.Context(), remaining); err != nil {
		t.Fatal(err)
	}
	s.edit("c1", func(c *clusterv1.ManagedCluster) {
		c.Spec.HubAcceptsClient = false
		c.Status.Conditions[0].Status, c.Status.Conditions[0].Reason = metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied
	})
	s.mustReconcile("c1")
	if _, found := s.aws.Entry(s.pair.HubRole()); !found {
		t.Error("the cluster cannot finish its works")
	}
	if err := s.api.Delete(t.Context(), remaining); err != nil {
		t.Fatal(err)
	}
	s.mustReconcile("c1")
	s.wantGone()
	if c := s.get("c1"); slices.Contains(c.Finalizers, fleet.FinalizerAWSAccess) || c.Annotations[fleet.AnnotationAWSRole] != "" ||
		meta.FindStatusCondition(c.Status.Conditions, fleet.ConditionAWSAccess) != nil {
		t.Errorf("it has %+v", c)
	}
	s.edit("c1", func(c *clusterv1.ManagedCluster) {
		c.Spec.HubAcceptsClient = true
		c.Status.Conditions[0].Status, c.Status.Conditions[0].Reason = metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted
	})
	s.mustReconcile("c1")
	s.wantCondition("c1", fleet.ReasonAWSAccessGranted, "")
	s.edit("c1", func(c *clusterv1.ManagedCluster) {
		c.Labels = map[string]string{fleet.LabelCutOff: fleet.LabelTrue}
		c.Spec.HubAcceptsClient = false
	})
	s.mustReconcile("c1")
	s.wantGone()
}

// RG-52: the agent of a deleted cluster has access until its other rights have gone; then nothing is left in AWS. Where AWS refuses, the
// cluster waits.
func TestDelete(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")))
	s.mustReconcile("c1")
	if err := s.api.Delete(t.Context(), s.get("c1")); err != nil {
		t.Fatal(err)
	}
	s.mustReconcile("c1")
	if _, found := s.aws.Entry(s.pair.HubRole()); !found {
		t.Error("the agent cannot clean up")
	}
	s.edit("c1", func(c *clusterv1.ManagedCluster) { c.Finalizers = []string{fleet.FinalizerAWSAccess} })
	s.aws.Refuse("DeleteRole")
	if err := s.reconcile("c1"); err == nil {
		t.Error("no error")
	}
	s.wantCondition("c1", fleet.ReasonAWSRequestFailed, "delete IAM role")
	s.wantCondition("c1", fleet.ReasonAWSRequestFailed, "take the finalizer "+fleet.FinalizerAWSAccess+" off the ManagedCluster")
	s.aws.Refuse("")
	s.mustReconcile("c1")
	s.wantGone()
	if err := s.api.Get(t.Context(), client.ObjectKey{Name: "c1"}, &clusterv1.ManagedCluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("the cluster: %v", err)
	}
}

// RG-52: a hub that does not register clusters by AWS IAM says so, and does not hold those that it did.
func TestWithoutDriver(t *testing.T) {
	t.Parallel()
	s := newScene(t, accepted("c1", pairOf("spoke1")))
	s.mustReconcile("c1")
	s.controller = awsaccess.New(s.api, s.events, awsaccess.Options{Clock: clock.RealClock{}})
	s.mustReconcile("c1")
	s.wantCondition("c1", fleet.ReasonAWSDriverNotEnabled, "awsirsa")
	s.edit("c1", func(c *clusterv1.ManagedCluster) {
		c.Annotations = map[string]string{fleet.AnnotationAWSRole: s.pair.HubRole()}
	})
	s.mustReconcile("c1")
	if c := s.get("c1"); slices.Contains(c.Finalizers, fleet.FinalizerAWSAccess) {
		t.Errorf("it has %v", c.Finalizers)
	}
}
