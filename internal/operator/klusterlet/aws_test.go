package klusterlet

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
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
