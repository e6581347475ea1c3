package klusterlet

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

const (
	hubARN     = "arn:aws:eks:us-west-2:123456789012:cluster/hub1"
	managedARN = "arn:aws:eks:eu-central-1:210987654321:cluster/spoke1"
	// suffix is the hash of what names the two.
	suffix = "2f086c84e7dcf5c5a3f63af41e669219"
)

func withAWS(k *operatorv1.Klusterlet) {
	if k.Spec.RegistrationConfiguration == nil {
		k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{}
	}
	k.Spec.RegistrationConfiguration.RegistrationDriver = operatorv1.RegistrationDriver{AuthType: operatorv1.RegistrationAuthTypeAWSIRSA,
		AwsIrsa: &operatorv1.AwsIrsa{HubClusterARN: hubARN, ManagedClusterARN: managedARN}}
}

// KL-18: in all modes, the pods of the agents have the role of the cluster in AWS, the AWS command line, and the way there; agents that
// register know both clusters.
func TestAWS(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			k := klusterletWith(mode)
			withAWS(k)
			if err := validate(k); err != nil {
				t.Fatal(err)
			}
			in := plainInputs
			in.awsCLIImage = "registry.example.com/aws-cli:2"
			l := layoutOf(k)
			p := planFor(l, in)
			pods := map[string]bool{}
			for _, object := range p.deployments {
				if deployment, ok := object.(*appsv1.Deployment); ok {
					pods[deployment.Spec.Template.Spec.ServiceAccountName] = true
					checkAWSPod(t, deployment.Name, deployment.Spec.Template.Spec)
				}
			}
			for _, object := range slices.Concat(p.managed, p.management) {
				if o, ok := object.(*corev1.ServiceAccount); ok {
					want := ""
					if o.Namespace == l.agents && pods[o.Name] {
						want = "arn:aws:iam::210987654321:role/ocm-managed-cluster-" + suffix
					}
					if got := o.Annotations["eks.amazonaws.com/role-arn"]; got != want {
						t.Errorf("service account %s/%s has the role %q, want %q", o.Namespace, o.Name, got, want)
					}
				}
			}
		})
	}
}

func checkAWSPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	container := pod.Containers[0]
	parse(t, container.Args)
	want := []string{"--registration-auth=awsirsa", "--hub-cluster-arn=" + hubARN, "--managed-cluster-arn=" + managedARN,
		"--managed-cluster-role-suffix=" + suffix}
	for _, arg := range want {
		if slices.Contains(container.Args, arg) != !strings.HasSuffix(name, "-work-agent") {
			t.Errorf("%s has %q", name, container.Args)
		}
	}
	path := container.Env[len(container.Env)-1]
	if path.Name != "PATH" || !strings.HasSuffix(path.Value, ":/awscli/dist") {
		t.Errorf("%s has the environment %+v", name, container.Env)
	}
	if len(pod.InitContainers) != 1 || pod.InitContainers[0].Image != "registry.example.com/aws-cli:2" ||
		!slices.Equal(pod.InitContainers[0].Command, []string{"cp", "-r", "/usr/local/aws-cli/v2/current/dist", "/awscli"}) ||
		*pod.InitContainers[0].SecurityContext.RunAsUser == 0 {
		t.Fatalf("%s has the init containers %+v", name, pod.InitContainers)
	}
	for place, mounts := range map[string][]corev1.VolumeMount{"its own": container.VolumeMounts, "the first": pod.InitContainers[0].VolumeMounts} {
		if !slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool {
			return m.Name == "awscli" && m.MountPath == "/awscli" && m.ReadOnly == (place == "its own")
		}) {
			t.Errorf("%s of %s has %+v", place, name, mounts)
		}
	}
}

// KL-18: agents of this project can do without the AWS command line, and others than those of AWS have none.
func TestWithoutAWSCLI(t *testing.T) {
	t.Parallel()
	withoutImage, other := klusterletWith(operatorv1.InstallModeDefault), klusterletWith(operatorv1.InstallModeDefault)
	withAWS(withoutImage)
	in := plainInputs
	for image, k := range map[string]*operatorv1.Klusterlet{"": withoutImage, DefaultAWSCLIImage: other} {
		in.awsCLIImage = image
		for _, object := range planFor(layoutOf(k), in).deployments {
			if deployment, ok := object.(*appsv1.Deployment); ok && len(deployment.Spec.Template.Spec.InitContainers) > 0 {
				t.Errorf("%s has %+v", deployment.Name, deployment.Spec.Template.Spec.InitContainers)
			}
		}
	}
}

// KL-18, KL-28, KL-31: an agent that registers by AWS IAM has moved when it has registered in its new namespace: it needs nothing in the
// former one. What it says of its connection counts.
func TestConnectionByAWS(t *testing.T) {
	t.Parallel()
	const former = fleet.NamespaceAgent + "-before"
	k := klusterletWith(operatorv1.InstallModeDefault)
	withAWS(k)
	k.Annotations = map[string]string{annotationAgentNamespace: former}
	l := layoutOf(k)
	credential := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fleet.SecretHubKubeconfig}, Data: map[string][]byte{
			fleet.KeyClusterName: []byte("cluster1"), fleet.KeyKubeconfig: []byte(`{"users":[{"name":"u","user":{"exec":{"command":"aws"}}}]}`)}}
	}
	report := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: fleet.ConfigMapHubConnection},
		Data: map[string]string{fleet.KeyHubConnectionMessage: "AccessDenied"}}
	for name, test := range map[string]struct {
		reports []client.Object
		reason  string
		needed  bool
	}{
		"reaches the hub": {nil, fleet.ReasonHubConnectionFunctional, false},
		"does not":        {[]client.Object{report}, fleet.ReasonHubUnreachableFromAgent, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan string, 1)
			c := &Controller{
				Operator: &frame.Operator{
					Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(test.reports...).Build(),
					Secrets: frame.NewSecrets(t.Context(), clientset.NewClientset(credential(l.agents), credential(former)).CoreV1(),
						rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil),
				},
				hub: hubaccess.New(t.Context(), clocktesting.NewFakeClock(time.Now()), func(name string) { done <- name }),
			}
			if _, _, err := c.connection(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			<-done
			_, condition, err := c.connection(t.Context(), l)
			if err != nil || condition == nil || condition.Reason != test.reason {
				t.Fatalf("the condition is %+v (%v)", condition, err)
			}
			if f, err := c.formerOf(t.Context(), l, nil, condition); err != nil || f.needed != test.needed {
				t.Errorf("the namespace from before is needed: %t (%v)", f.needed, err)
			}
		})
	}
}
