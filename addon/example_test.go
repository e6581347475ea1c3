package addon_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/addontest"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// An add-on may be as healthy as one of its Deployments, and as something of its own.
func ExampleProbe() {
	volume := addon.Probe{
		Resource: workv1.ResourceIdentifier{Resource: "persistentvolumeclaims", Namespace: "hello", Name: "data-*"},
		Feedback: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{{Name: "phase", Path: ".status.phase"}}}},
		Healthy: func(_ workv1.ManifestResourceMeta, reported workv1.StatusFeedbackResult) error {
			for _, value := range reported.Values {
				if value.Name == "phase" && value.Value.String != nil && *value.Value.String == "Bound" {
					return nil
				}
			}
			return errors.New("it is not bound to a volume")
		},
	}
	options := addon.Options{
		Name:   "hello",
		Health: addon.Health{Mode: addon.HealthProbes, Probes: []addon.Probe{addon.DeploymentProbe("hello", "agent"), volume}},
	}
	lost := "Lost"
	reported := workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: "phase",
		Value: workv1.FieldValue{Type: workv1.String, String: &lost}}}}
	fmt.Println(options.Health.Probes[1].Healthy(workv1.ManifestResourceMeta{Name: "data-0"}, reported))
	// Output: it is not bound to a volume
}

// The agent gets rights of its own in the namespace of its cluster on the hub.
func ExampleBindRole() {
	permissions := func(_ context.Context, i addon.Installation) ([]client.Object, error) {
		role := addon.NewRole(i, "hello-agent", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get"}})
		binding, err := addon.BindRole(i, role.Name)
		return []client.Object{role, binding}, err
	}
	installation := addontest.Installation("cluster1", "hello")
	_, err := permissions(context.Background(), installation)
	fmt.Println(errors.Is(err, addon.ErrSubjectNotReady))

	// The manager has put into the status as whom the agent registers.
	installation.AddOn.Status.Registrations = []addonv1beta1.RegistrationConfig{addon.KubeClient(installation, "agent")}
	objects, err := permissions(context.Background(), installation)
	if err != nil {
		panic(err)
	}
	binding := objects[1].(*rbacv1.RoleBinding)
	fmt.Println(binding.Namespace, binding.Name)
	fmt.Println(binding.Subjects[0].Kind, binding.Subjects[0].Name)
	// Output:
	// true
	// cluster1 open-cluster-management:cluster1:hello:role:hello-agent
	// Group system:open-cluster-management:cluster:cluster1:addon:hello
}

// A Job with the annotation runs before the add-on goes, and the rest stays until it is done.
func ExampleWorkload_hook() {
	workload := &addon.Workload{Objects: []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "hello", Name: "settings"}},
		&batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "hello", Name: "goodbye", Annotations: map[string]string{"addon.open-cluster-management.io/addon-pre-delete": ""},
			},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "goodbye", Image: "example.com/hello:v1", Args: []string{"clean-up"}}},
			}}},
		},
	}}
	fmt.Println(len(workload.Objects))
	// Output: 2
}

// The agent gets a certificate of an authority of the add-on.
func ExampleSignWith() {
	caCert, caKey := authority()
	sign, err := addon.SignWith(caCert, caKey, time.Hour)
	if err != nil {
		panic(err)
	}
	registration := addon.Registration{
		Configs: func(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
			return []addonv1beta1.RegistrationConfig{{Type: addonv1beta1.CustomSigner, CustomSigner: &addonv1beta1.CustomSignerConfig{
				SignerName: "example.com/hello", Subject: addonv1beta1.Subject{User: "hello"},
			}}}, nil
		},
		Sign: sign,
	}
	certificate, err := registration.Sign(context.Background(), addontest.Installation("cluster1", "hello"), request("hello"))
	if err != nil {
		panic(err)
	}
	block, _ := pem.Decode(certificate)
	issued, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(err)
	}
	fmt.Println(issued.Subject, "by", issued.Issuer)
	// Output: CN=hello by CN=hello CA
}

// authority is a certification authority.
func authority() (certificate, key []byte) {
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hello CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, _ := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	encoded, _ := x509.MarshalPKCS8PrivateKey(private)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", encoded)
}

// request is what the agent of a cluster makes.
func request(user string) *certificatesv1.CertificateSigningRequest {
	private, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, _ := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}}, private)
	csr := &certificatesv1.CertificateSigningRequest{}
	csr.Spec.Request = encode("CERTIFICATE REQUEST", der)
	csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	return csr
}

func encode(kind string, der []byte) []byte {
	var out bytes.Buffer
	_ = pem.Encode(&out, &pem.Block{Type: kind, Bytes: der})
	return out.Bytes()
}
