package install_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// goodKlusterlet has all conditions, of an agent with a Deployment.
const goodKlusterlet = `{"metadata":{"uid":"u1"},"status":{"observedGeneration":1,
"relatedResources":[{"group":"apps","version":"v1","resource":"deployments","namespace":"open-cluster-management-agent","name":"agent"}],
"conditions":[{"type":"Applied","status":"True"},{"type":"RegistrationDesiredDegraded","status":"False"},
{"type":"WorkDesiredDegraded","status":"False"}]}}`

const agentDeployments = "/apis/apps/v1/namespaces/open-cluster-management-agent/deployments"

// putRunning adds a Deployment whose pod runs.
func putRunning(t *testing.T, h clitest.Hub, collection, name string) {
	t.Helper()
	h.Put(t, collection+"/"+name, runningDeployment(strings.Split(collection, "/")[5], name))
}

func runningDeployment(namespace, name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		Status:     appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	}
}

// newClusterWithAgent is a cluster whose agent runs, whatever it reaches.
func newClusterWithAgent(t *testing.T) clitest.Hub {
	t.Helper()
	h := newCluster(t)
	putRunning(t, h, strings.TrimSuffix(clitest.OperatorsPath, "/"), "klusterlet")
	putRunning(t, h, agentDeployments, "agent")
	put(t, h, map[string]string{klusterletsPath + "klusterlet": "Klusterlet", "/api/v1/namespaces/open-cluster-management-agent": "Namespace"},
		map[string]string{klusterletsPath + "klusterlet": goodKlusterlet})
	return h
}

// joinCommand joins the cluster c1 to a hub.
func joinCommand(t *testing.T, h clitest.Hub, flags ...string) []string {
	t.Helper()
	return append([]string{"join", "--hub-token", "t", "--hub-apiserver", h.URL, "--cluster-name", "c1", "--ca-file", clitest.WriteCA(t, h)}, flags...)
}

// CA-17: join waits for what this agent does on the hub: what is there from before, and of others, does not count.
func TestJoinWaitsForItsAgent(t *testing.T) {
	request := func(agent string, approved bool) *certificatesv1.CertificateSigningRequest {
		csr := fakehub.JoinRequest(t, "of-"+agent, "c1", agent)
		if approved {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
		}
		return csr
	}
	for name, test := range map[string]struct {
		before     *certificatesv1.CertificateSigningRequest
		then       *certificatesv1.CertificateSigningRequest
		credential bool
		heartbeat  bool
		registers  bool
	}{
		"the cluster is from before":                    {},
		"another agent asks":                            {then: request("u2", false)},
		"another agent asked":                           {before: request("u2", false)},
		"it was approved before":                        {before: request("u1", true)},
		"it asked before, and nobody answered":          {before: request("u1", false), registers: true},
		"it asks":                                       {then: request("u1", false), registers: true},
		"it asks, and is approved at once":              {then: request("u1", true), registers: true},
		"it has a certificate":                          {credential: true},
		"it has a certificate, and works":               {credential: true, heartbeat: true, registers: true},
		"it has a certificate, and asks for another":    {credential: true, then: request("u1", false), registers: true},
		"it works without a certificate that was saved": {heartbeat: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newHubToJoin(t), newClusterWithAgent(t)
			h.Put(t, clitest.ClustersPath+"/c1", clitest.AcceptedCluster("c1", "ManagedClusterJoined", "ManagedClusterConditionAvailable"))
			const lease = "/apis/coordination.k8s.io/v1/namespaces/c1/leases"
			beat := func(at string) {
				put(t, h, map[string]string{lease + "/managed-cluster-lease": "Lease"},
					map[string]string{lease + "/managed-cluster-lease": `{"metadata":{"namespace":"c1"},"spec":{"renewTime":"` + at + `"}}`})
			}
			beat("2026-11-23T12:00:00.000000Z")
			if test.credential {
				putCredential(t, c, "c1")
			}
			if test.before != nil {
				h.PutRequest(t, test.before)
			}
			over, done := make(chan struct{}), make(chan clitest.Result)
			go func() {
				done <- clitest.RunUntil(t.Context(), over, "", append([]string{"--kubeconfig", c.File}, joinCommand(t, h, "--wait")...)...)
			}()
			if test.before == nil || !test.registers {
				h.WaitForWatch(t, clitest.RequestsPath)
			}
			if test.credential {
				h.WaitForWatch(t, lease)
			}
			if test.then != nil {
				h.PutRequest(t, test.then)
			}
			if test.heartbeat {
				beat("2026-11-23T11:00:00.000000Z") // a clock that is behind
			}
			if test.registers {
				(<-done).Succeeds(t, "capstan accept --clusters c1", "--requesters system:open-cluster-management:c1:u1")
				return
			}
			close(over)
			(<-done).Fails(t, "the hub has not heard of system:open-cluster-management:c1:u1", "not done after")
		})
	}
}

// CA-17: where the hub does not show what the agent does, join says so instead of success, unless the cluster is new there.
func TestJoinSaysWhatItCannotSee(t *testing.T) {
	aws := []string{"--registration-auth", "awsirsa", "--hub-cluster-arn", hubARN, "--managed-cluster-arn", managedARN}
	grpc := []string{"--registration-auth", "grpc", "--grpc-server", "h:1"}
	for name, test := range map[string]struct {
		flags              []string
		credential, hidden bool
		isNew              bool
		says               string // empty for success
	}{
		"by AWS IAM, again":       {flags: aws, says: "an agent that registers by AWS IAM makes no certificate request"},
		"by AWS IAM":              {flags: aws, isNew: true},
		"by gRPC, again":          {flags: grpc, credential: true, says: "makes no request again"},
		"requests are hidden":     {hidden: true, says: "the hub does not let you see certificate requests"},
		"hidden, and all are new": {hidden: true, isNew: true},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newHubToJoin(t), newClusterWithAgent(t)
			ca := clitest.WriteCA(t, h)
			if test.hidden {
				h.Handle("GET "+clitest.RequestsPath, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no"))
			}
			if test.credential {
				putCredential(t, c, "c1")
				test.flags = append(test.flags, "--grpc-ca-file", ca)
			}
			cluster := func() { h.Put(t, clitest.ClustersPath+"/c1", clitest.AcceptedCluster("c1")) }
			if !test.isNew {
				cluster()
			}
			done := make(chan clitest.Result, 1)
			go func() { done <- c.Run(t, "", append(joinCommand(t, h, "--wait"), test.flags...)...) }()
			if test.isNew {
				h.WaitForWatch(t, clitest.ClustersPath)
				cluster()
			}
			got := <-done
			got.Succeeds(t, "capstan accept --clusters c1")
			registered := strings.Contains(got.ErrOut, "c1: registered with the hub")
			advised := strings.Contains(got.ErrOut, `see on the hub, with "capstan get clusters c1"`)
			if registered != (test.says == "") || advised == registered || !strings.Contains(got.ErrOut, test.says) {
				t.Errorf("it says\n%s", got.ErrOut)
			}
			if advised {
				h.Follow(t, got, "get clusters c1").Succeeds(t, "c1")
			}
		})
	}
}

func putCredential(t *testing.T, h clitest.Hub, cluster string) {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey("agent", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]any{"data": map[string]string{
		"cluster-name": base64.StdEncoding.EncodeToString([]byte(cluster)),
		"tls.crt":      base64.StdEncoding.EncodeToString(certificate), "tls.key": base64.StdEncoding.EncodeToString(key),
	}})
	if err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/namespaces/open-cluster-management-agent/secrets/hub-kubeconfig-secret"
	put(t, h, map[string]string{path: "Secret"}, map[string]string{path: string(content)})
}

// CA-17: conditions that are good say nothing where what they are about is gone.
func TestConditionsFromBefore(t *testing.T) {
	const namespace = "/api/v1/namespaces/open-cluster-management-agent"
	for name, test := range map[string]struct {
		prepare func(t *testing.T, c clitest.Hub)
		watches string
		mend    func(t *testing.T, c clitest.Hub)
	}{
		"the namespace is gone": {func(t *testing.T, c clitest.Hub) { c.Remove(t, namespace) }, agentDeployments, func(t *testing.T, c clitest.Hub) {
			putRunning(t, c, agentDeployments, "agent")
			put(t, c, map[string]string{namespace: "Namespace"}, nil)
		}},
		"the namespace is being deleted": {func(t *testing.T, c clitest.Hub) {
			put(t, c, map[string]string{namespace: "Namespace"}, map[string]string{
				namespace: `{"metadata":{"deletionTimestamp":"2026-11-23T12:00:00Z"}}`})
		}, "/api/v1/namespaces", func(t *testing.T, c clitest.Hub) {
			put(t, c, map[string]string{namespace: "Namespace"}, nil)
			putRunning(t, c, agentDeployments, "agent")
		}},
		"the Deployment is gone": {func(t *testing.T, c clitest.Hub) { c.Remove(t, agentDeployments+"/agent") }, agentDeployments,
			func(t *testing.T, c clitest.Hub) { putRunning(t, c, agentDeployments, "agent") }},
		"its pods do not run": {func(t *testing.T, c clitest.Hub) {
			put(t, c, map[string]string{agentDeployments + "/agent": "Deployment"}, nil)
		}, agentDeployments, func(t *testing.T, c clitest.Hub) { putRunning(t, c, agentDeployments, "agent") }},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := newHubToJoin(t), newClusterWithAgent(t)
			h.Put(t, clitest.ClustersPath+"/c1", clitest.Cluster("c1", nil))
			h.PutRequest(t, fakehub.JoinRequest(t, "one", "c1", "u1"))
			test.prepare(t, c)
			done := make(chan clitest.Result)
			go func() { done <- c.Run(t, "", joinCommand(t, h, "--wait")...) }()
			c.WaitForWatch(t, test.watches)
			test.mend(t, c)
			(<-done).Succeeds(t, "capstan accept --clusters c1")
		})
	}
}

// goodManager has all conditions, as an operator of a version has written them.
func goodManager(version string) string {
	return `{"metadata":{"annotations":{"capstan.io/installed-version":"` + version + `"}},"status":{"conditions":[
{"type":"Applied","status":"True"},{"type":"Progressing","status":"False"},
{"type":"HubRegistrationDegraded","status":"False"},{"type":"HubPlacementDegraded","status":"False"}]}}`
}

// CA-12, CA-41: conditions that are good say nothing where the operator that has written them is of the version before.
func TestConditionsOfTheOperatorBefore(t *testing.T) {
	t.Parallel()
	flags := []string{"--wait", "--bundle-version-overrides", inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)}
	for name, command := range map[string][]string{"init": {"init"}, "upgrade": {"upgrade", "clustermanager"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, manager := newClusterForHub(t), managersPath+"cluster-manager"
			h.Put(t, clitest.OperatorsPath+"cluster-manager", &appsv1.Deployment{
				TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
				ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager", Namespace: "open-cluster-management"},
				Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3),
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cluster-manager"}}},
				Status: appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3},
			})
			put(t, h, map[string]string{manager: "ClusterManager"}, map[string]string{manager: goodManager("v0.2.0")})
			h.TimesOut(t, strings.TrimSuffix(managersPath, "/"), "", slices.Concat(command, flags, []string{"--timeout", "1"})...).
				Fails(t, "the operator has not installed all of version v0.3.0 yet", "not done after 1s")
			put(t, h, map[string]string{manager: "ClusterManager"}, map[string]string{manager: goodManager("v0.3.0")})
			waited := h.Run(t, "", slices.Concat(command, flags)...)
			waited.Succeeds(t)
			if strings.Contains(waited.ErrOut, notWaited) {
				t.Errorf("it has waited, and says %s", waited.ErrOut)
			}
		})
	}
}

const notWaited = "Nothing has been waited for"

// CA-10, CA-41: without --wait, the words of success are followed by what they do not say, apart from what programs read.
func TestSaysThatNothingHasBeenWaitedFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"init":    {[]string{"init"}, "The multicluster hub control plane has been initialized successfully!"},
		"upgrade": {[]string{"upgrade", "clustermanager"}, "The operator and 1 ClusterManagers have been upgraded completed successfully"},
		"json":    {[]string{"init", "-o", "json"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newClusterForHub(t)
			putOperator(t, h, "cluster-manager", "r/x:v0.2.0", nil)
			put(t, h, map[string]string{managersPath + "cluster-manager": "ClusterManager"}, nil)
			got := h.Run(t, "", test.args...)
			got.Succeeds(t, test.says)
			if strings.Contains(got.Out, notWaited) || test.says == "" != json.Valid([]byte(got.Out)) {
				t.Errorf("it prints %s", got.Out)
			}
			if test.says != "" && (!strings.Contains(got.ErrOut, notWaited) || !strings.Contains(got.ErrOut, "With --wait")) {
				t.Errorf("it says %s", got.ErrOut)
			}
		})
	}
}

// CA-17: the same holds for the conditions of a Klusterlet, whose operator did not run before join replaced it.
func TestConditionsOfTheOperatorOfAgentsBefore(t *testing.T) {
	t.Parallel()
	const klusterlet = klusterletsPath + "klusterlet"
	c, bundle := newClusterWithAgent(t), inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)
	putOperator(t, c, "klusterlet", "ghcr.io/capstan-io/capstan-agent:v0.2.0", nil)
	c.OnWrite(func() {
		c.PutLocked(t, clitest.OperatorsPath+"klusterlet", runningDeployment("open-cluster-management", "klusterlet"))
	})
	put(t, c, map[string]string{klusterlet: "Klusterlet"}, map[string]string{klusterlet: strings.Replace(goodKlusterlet, `"uid":"u1"`,
		`"uid":"u1","annotations":{"capstan.io/installed-version":"v0.2.0"}`, 1)})
	c.TimesOut(t, strings.TrimSuffix(klusterletsPath, "/"), "",
		joinCommand(t, newHubToJoin(t), "--wait", "--timeout", "1", "--bundle-version-overrides", bundle)...).
		Fails(t, "the operator has not installed all of version v0.3.0 yet")
}

// CA-12: what waiting cannot mend ends it, with the reason; what it can is said meanwhile.
func TestWaitEndsEarly(t *testing.T) {
	for name, test := range map[string]struct {
		reason, message, image string
		ends                   bool
	}{
		"not in the registry":          {"ErrImagePull", `failed to resolve: r/capstan-hub:v0.3.0: not found`, "r/capstan-hub:v0.3.0", true},
		"not in the registry, backoff": {"ImagePullBackOff", `Back-off pulling image "r/x": manifest unknown`, "r/capstan-hub:v0.3.0", true},
		"no password":                  {"ErrImagePull", "pull access denied", "r/capstan-hub:v0.3.0", true},
		"no name":                      {"InvalidImageName", "couldn't parse", "r/capstan-hub:v0.3.0", true},
		"never to be pulled":           {"ErrImageNeverPull", "policy is Never", "r/capstan-hub:v0.3.0", true},
		"of the version before":        {"ErrImagePull", "not found", "r/capstan-hub:v0.2.0", false},
		"no network":                   {"ErrImagePull", "dial tcp: i/o timeout", "r/capstan-hub:v0.3.0", false},
		"a program that ends":          {"CrashLoopBackOff", "back-off", "r/capstan-hub:v0.3.0", false},
		"a Secret to come":             {"CreateContainerConfigError", `secret "y" not found`, "r/capstan-hub:v0.3.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, bundle := newCluster(t), inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)
			putOperator(t, h, "cluster-manager", "r/capstan-hub:v0.3.0", nil)
			over, done := make(chan struct{}), make(chan clitest.Result)
			go func() {
				done <- clitest.RunUntil(t.Context(), over, "", "--kubeconfig", h.File, "init", "--wait", "--timeout", "1", "--image-registry", "r",
					"--bundle-version-overrides", bundle)
			}()
			h.WaitForWatch(t, operatorPods)
			putWaitingPod(t, h, test.image, test.reason, test.message)
			if test.ends {
				got := <-done
				got.Fails(t, "waiting does not mend this", "pod p1: its image r/capstan-hub:v0.3.0 cannot be pulled", test.message)
				if !strings.Contains(got.ErrOut, "! cluster-manager: pod p1") {
					t.Errorf("it is not said while it waits: %s", got.ErrOut)
				}
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_ = h.AwaitWatch(ctx, strings.TrimSuffix(clitest.OperatorsPath, "/"))
			close(over)
			(<-done).Fails(t, "not done after 1s")
		})
	}
}

// CA-12: a pull that had failed before does not end the wait: it may have been with another password. One that fails again does.
func TestWaitAfterAFailedPull(t *testing.T) {
	t.Parallel()
	const image = "r/capstan-hub:v0.3.0"
	h, bundle := newCluster(t), inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)
	putOperator(t, h, "cluster-manager", image, nil)
	putWaitingPod(t, h, image, "ErrImagePull", "401 Unauthorized")
	done := make(chan clitest.Result, 1)
	go func() {
		done <- h.Run(t, "", "init", "--wait", "--image-registry", "r", "--bundle-version-overrides", bundle)
	}()
	h.WaitForWatch(t, operatorPods) // the command has listed the pods, and goes on
	putWaitingPod(t, h, image, "ImagePullBackOff", "back-off after 401 Unauthorized")
	putWaitingPod(t, h, image, "ErrImagePull", "403 Forbidden: denied")
	(<-done).Fails(t, "waiting does not mend this", "pod p1: its image "+image+" cannot be pulled", "403 Forbidden: denied")
}

// CA-12: a pull that fails while init waits for the operator ends the wait for what the operator runs, as it has not failed before.
func TestWaitAfterAPullThatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	const (
		image       = "r/capstan-hub:v0.3.0"
		pods        = "/api/v1/namespaces/open-cluster-management-hub/pods"
		deployments = "/apis/apps/v1/namespaces/open-cluster-management-hub/deployments"
	)
	h, bundle := newCluster(t), inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)
	clitest.TimesOutAfter(t, func(ctx context.Context) {
		if h.AwaitWatch(ctx, operatorPods) != nil {
			return
		}
		labels := map[string]string{"app": "hub"}
		spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "hub", Image: image}}}
		h.Put(t, deployments+"/hub", &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: "hub", Namespace: "open-cluster-management-hub"},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
		})
		h.Put(t, pods+"/p2", &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "p2", Namespace: "open-cluster-management-hub", Labels: labels},
			Spec:       spec,
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Image: image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: `Back-off pulling image: manifest unknown`}}}}},
		})
		putRunning(t, h, strings.TrimSuffix(clitest.OperatorsPath, "/"), "cluster-manager")
		_ = h.AwaitWatch(ctx, pods) // it has seen the failure, and goes on
	}, "", "--kubeconfig", h.File, "init", "--wait", "--image-registry", "r", "--bundle-version-overrides", bundle).
		Fails(t, "waiting does not mend this", "pod p2: its image "+image+" cannot be pulled", "manifest unknown")
}

// CA-12: a pull that fails while a command applies has not failed before it.
func TestWaitAfterAPullThatFailsWhileApplying(t *testing.T) {
	t.Parallel()
	const hubImage, agentImage, operators = "r/capstan-hub:v0.3.0", "r/capstan-agent:v0.3.0", "open-cluster-management"
	wait := []string{"--wait", "--image-registry", "r", "--bundle-version-overrides", inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)}
	for name, test := range map[string]struct {
		run                          []string
		namespace, deployment, image string
	}{
		"init":             {[]string{"init"}, operators, "cluster-manager", hubImage},
		"init --singleton": {[]string{"init", "--singleton", "--singleton-name", "one"}, "one", "multicluster-controlplane", hubImage},
		"join":             {joinCommand(t, newHubToJoin(t)), operators, "klusterlet", agentImage},
		"upgrade":          {[]string{"upgrade", "clustermanager"}, operators, "cluster-manager", hubImage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, pods := newClusterForAllKinds(t), "/api/v1/namespaces/"+test.namespace+"/pods"
			if name == "upgrade" {
				putOperator(t, h, test.deployment, test.image, nil)
			}
			h.OnWrite(func() {
				if h.HasLocked("/apis/apps/v1/namespaces/" + test.namespace + "/deployments/" + test.deployment) {
					h.PutLocked(t, pods+"/p1", waitingPod(test.namespace, test.deployment, test.image, "ImagePullBackOff", "manifest unknown"))
				}
			})
			clitest.TimesOutAfter(t, func(ctx context.Context) { _ = h.AwaitWatch(ctx, pods) }, "",
				slices.Concat([]string{"--kubeconfig", h.File}, test.run, wait)...).
				Fails(t, "waiting does not mend this", "pod p1: its image "+test.image+" cannot be pulled")
		})
	}
}

// CA-12: a command that cannot find out which pulls had failed before it applies nothing. Without the right to list pods, it says nothing
// of pulls.
func TestWaitWithoutPods(t *testing.T) {
	t.Parallel()
	const operator = clitest.OperatorsPath + "cluster-manager"
	h := newCluster(t)
	h.Handle("GET "+operatorPods, fakehub.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "no luck"))
	h.Run(t, "", "init", "--wait").Fails(t, "list objects of kind Pod", "no luck")
	if h.Has(operator) {
		t.Error("the operator was applied")
	}
	h.Handle("GET "+operatorPods, fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no"))
	h.TimesOut(t, strings.TrimSuffix(clitest.OperatorsPath, "/"), "", "init", "--wait").Fails(t, "not done after")
	if !h.Has(operator) {
		t.Error("the operator was not applied")
	}
}

const operatorPods = "/api/v1/namespaces/open-cluster-management/pods"

// putWaitingPod adds a pod of the operator of a hub whose container waits.
func putWaitingPod(t *testing.T, h clitest.Hub, image, reason, message string) {
	t.Helper()
	h.Put(t, operatorPods+"/p1", waitingPod("open-cluster-management", "cluster-manager", image, reason, message))
}

// waitingPod is the pod p1 of a Deployment that selects app, whose container waits.
func waitingPod(namespace, app, image, reason, message string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "p1", Namespace: namespace, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: app, Image: image}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Image: image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}},
	}
}
