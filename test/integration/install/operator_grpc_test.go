package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CM-09, CM-12, CM-16, CM-17, CM-23, GR-01, GR-02: the gRPC server comes and goes with the driver.
func (i *installed) testGRPCServer(t *testing.T) {
	loadBalancer := operatorv1.EndpointExposure{GRPC: &operatorv1.Endpoint{Type: operatorv1.EndpointTypeLoadBalancer}}
	route := operatorv1.EndpointExposure{GRPC: &operatorv1.Endpoint{Type: operatorv1.EndpointTypeRoute,
		Route: &operatorv1.OptionalHostConfig{Host: "grpc.apps.example.com"}}}
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) {
		spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{RegistrationDrivers: []operatorv1.RegistrationDriverHub{
			{AuthType: operatorv1.RegistrationAuthTypeCSR}, {AuthType: operatorv1.RegistrationAuthTypeGRPC}}}
		spec.ServerConfiguration = &operatorv1.ServerConfiguration{EndpointsExposure: []operatorv1.EndpointExposure{loadBalancer, route}}
	})
	with := append(append([]string{}, hubDeployments[:2]...), append([]string{"cluster-manager-grpc-server"}, hubDeployments[2:]...)...)
	i.awaitDeployments(t, fleet.NamespaceHub, with...)
	i.awaitHub(t, append(hubIsUp, "ConfigurationSupported=True")...)
	i.awaitServing(t, "cluster-manager-grpc-server.open-cluster-management-hub.svc", "grpc.apps.example.com")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: "cluster-manager-grpc-server"}}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}, {Hostname: "lb.example.net"}}
		return i.Status().Update(ctx, service)
	})
	i.awaitServing(t, "grpc.apps.example.com", "192.0.2.7", "lb.example.net")
	i.testGRPCSettings(t)
	i.testStolenGRPCToken(t)

	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) { spec.RegistrationConfiguration = nil })
	i.awaitHub(t, append(hubIsUp, "ConfigurationSupported=False/UnsupportedFields:spec.serverConfiguration")...)
	i.edit(t, func(spec *operatorv1.ClusterManagerSpec) { spec.ServerConfiguration = nil })
	i.awaitDeployments(t, fleet.NamespaceHub, hubDeployments...)
	i.awaitGone(t, service, &corev1.Secret{ObjectMeta: named(fleet.NamespaceHub, "grpc-server-serving-cert")},
		&corev1.ConfigMap{ObjectMeta: named(fleet.NamespaceHub, "grpc-server-config")},
		&corev1.ServiceAccount{ObjectMeta: named(fleet.NamespaceHub, "grpc-server-sa")},
		&rbacv1.ClusterRole{ObjectMeta: named("", "open-cluster-management:cluster-manager-grpc-server")},
		&rbacv1.ClusterRole{ObjectMeta: named("", "open-cluster-management:cluster-manager-registration:grpc")})
	i.awaitHub(t, append(hubIsUp, "ConfigurationSupported=True")...)
}

// awaitServing waits until the gRPC server has a certificate for the hosts, of the authority of the hub.
func (i *installed) awaitServing(t *testing.T, hosts ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		secret, bundle := &corev1.Secret{}, &corev1.ConfigMap{}
		if err := errors.Join(i.Get(ctx, client.ObjectKey{Namespace: fleet.NamespaceHub, Name: "grpc-server-serving-cert"}, secret),
			i.Get(ctx, client.ObjectKey{Namespace: fleet.NamespaceHub, Name: "ca-bundle-configmap"}, bundle)); err != nil {
			return err
		}
		var failures []error
		for _, host := range hosts {
			failures = append(failures, verify(secret.Data[corev1.TLSCertKey], []byte(bundle.Data["ca-bundle.crt"]), host))
		}
		return errors.Join(failures...)
	})
}

// testGRPCSettings is about the settings of a user, which stay and replace the pods that have read others.
func (i *installed) testGRPCSettings(t *testing.T) {
	t.Helper()
	const settings = "max_receive_message_size: 8388608\n"
	hash := func(ctx context.Context) string {
		deployment := &appsv1.Deployment{}
		if err := i.Get(ctx, client.ObjectKey{Namespace: fleet.NamespaceHub, Name: "cluster-manager-grpc-server"}, deployment); err != nil {
			t.Error(err)
		}
		return deployment.Spec.Template.Annotations["capstan.io/config-hash"]
	}
	before := hash(t.Context())
	config := &corev1.ConfigMap{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKey{Namespace: fleet.NamespaceHub, Name: "grpc-server-config"}, config); err != nil {
			return err
		}
		config.Data["config.yaml"] = settings
		return i.Update(ctx, config)
	})
	env.Eventually(t, func(ctx context.Context) error {
		if now := hash(ctx); now == before {
			return fmt.Errorf("the pods have the hash %s of other settings", now)
		}
		return nil
	})
	i.awaitHub(t, hubIsUp...)
	if err := i.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil || config.Data["config.yaml"] != settings {
		t.Errorf("the settings are %q: %v", config.Data["config.yaml"], err)
	}
}

// testStolenGRPCToken is about what the account of the server may do, beyond what agents ask of it.
func (i *installed) testStolenGRPCToken(t *testing.T) {
	t.Helper()
	const name = "by-grpc"
	server := asHubAccount(t, i.Server, fleet.ServiceAccountGRPCServer)
	framework.Create(t, i, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: framework.OfCluster(name)}},
		&corev1.ServiceAccount{ObjectMeta: named(name, "proxy-agent")}, &corev1.ServiceAccount{ObjectMeta: named(name, "admin")})
	request := func(signer string, annotations map[string]string, labels map[string]string) error {
		csr, _ := framework.NewRequest(t, framework.AgentSubject(name, "agent1"), labels)
		csr.Spec.SignerName, csr.Annotations = signer, annotations
		return server.Create(t.Context(), csr)
	}
	token := func(namespace, account string) error {
		who := &corev1.ServiceAccount{ObjectMeta: named(namespace, account)}
		return server.SubResource("token").Create(t.Context(), who, &authenticationv1.TokenRequest{})
	}
	lease := func(name string) error {
		return server.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: named("by-grpc", name),
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("x")}})
	}
	forUser := map[string]string{fleet.AnnotationCSRUser: "system:bootstrap:abc123"}
	// Rights and policies are at stake; the webhook, which is asked last, does not run here.
	i.withoutRequestWebhook(t, func() {
		for what, do := range map[string]func() error{
			"a certificate for an agent": func() error { return request(fleet.SignerGRPC, forUser, framework.OfCluster(name)) },
			"a token of an add-on":       func() error { return token(name, "proxy-agent") },
			"the heartbeat of a cluster": func() error { return lease(fleet.ClusterNamespaceLease) },
		} {
			env.Eventually(t, func(context.Context) error { // until the policies, and the rights, are in force
				if err := do(); err != nil && !apierrors.IsAlreadyExists(err) {
					return fmt.Errorf("%s: %w", what, err)
				}
				return nil
			})
		}
	})
	for what, do := range map[string]func() error{
		"a certificate for the API server": func() error { return request(fleet.SignerKubeAPIServerClient, forUser, framework.OfCluster(name)) },
		"a certificate for nobody":         func() error { return request(fleet.SignerGRPC, nil, framework.OfCluster(name)) },
		"a certificate for no cluster":     func() error { return request(fleet.SignerGRPC, forUser, nil) },
		"a token of another account":       func() error { return token(name, "admin") },
		"a token of a controller":          func() error { return token(fleet.NamespaceHub, fleet.ServiceAccountAddOnManager) },
		"another lease":                    func() error { return lease("another") },
	} {
		env.Eventually(t, func(context.Context) error {
			if err := do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "grpc-server.capstan.io") {
				return fmt.Errorf("%s is not refused by a policy: %w", what, cmp.Or(err, errThere))
			}
			return nil
		})
	}
	i.testApprovalByGRPC(t, name)
}

// withoutRequestWebhook does something while the API server does not ask the webhook for certificate requests of agents, which the operator
// would put back.
func (i *installed) withoutRequestWebhook(t *testing.T, do func()) {
	t.Helper()
	if err := i.operator.Stop(); err != nil {
		t.Fatal(err)
	}
	const name = "agentrequestvalidators.admission.certificates.open-cluster-management.io"
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := i.Get(t.Context(), client.ObjectKey{Name: name}, configuration); err != nil {
		t.Fatal(err)
	}
	configuration.Webhooks = slices.DeleteFunc(configuration.Webhooks, func(webhook admissionregistrationv1.ValidatingWebhook) bool {
		return webhook.Name == name
	})
	if err := i.Update(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	do()
	if err := i.operator.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKey{Name: name}, configuration); err != nil {
			return err
		}
		if len(configuration.Webhooks) != 2 {
			return fmt.Errorf("the operator has not put the webhook back: %v", configuration.Webhooks)
		}
		return nil
	})
}

// testApprovalByGRPC is about what the registration controllers may approve and sign of what the server has asked for.
func (i *installed) testApprovalByGRPC(t *testing.T, cluster string) {
	t.Helper()
	registration := asHubAccount(t, i.Server, fleet.ServiceAccountRegistrationController)
	all := &certificatesv1.CertificateSigningRequestList{}
	if err := i.List(t.Context(), all, client.MatchingLabels(framework.OfCluster(cluster))); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all.Items, func(csr certificatesv1.CertificateSigningRequest) bool {
		return csr.Spec.SignerName == fleet.SignerGRPC && csr.Annotations[fleet.AnnotationCSRUser] != ""
	})
	if at < 0 {
		t.Fatalf("the server has asked for nothing: %v", all.Items)
	}
	csr := &all.Items[at]
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
		Status: corev1.ConditionTrue, Reason: "Test"}}
	// Rights and policies let it pass; the webhook that reads the request, which is asked last, does not run here.
	if err := registration.SubResource("approval").Update(t.Context(), csr.DeepCopy()); err == nil ||
		!strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("to approve is %v", err)
	}
	if err := i.SubResource("approval").Update(t.Context(), csr); err != nil {
		t.Fatal(err)
	}
	certificate, _, err := certutil.GenerateSelfSignedCertKey("agent", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	csr.Status.Certificate = certificate
	if err := registration.Status().Update(t.Context(), csr); err != nil {
		t.Errorf("to sign is %v", err)
	}
}

// KL-07, KL-18, GR-11: an agent that registers through the gRPC server needs a config.yaml and no kubeconfig, and may reach that server.
func TestKlusterletByGRPC(t *testing.T) {
	t.Parallel()
	const name = "kl-grpc"
	cluster := klusterletCluster(t)
	c, namespace := cluster.Client(t), "open-cluster-management-"+name
	k := newKlusterlet(name, operatorv1.InstallModeDefault)
	k.Spec.RegistrationConfiguration = &operatorv1.RegistrationConfiguration{
		RegistrationDriver: operatorv1.RegistrationDriver{AuthType: operatorv1.RegistrationAuthTypeGRPC}}
	framework.Create(t, c, k)
	k = awaitKlusterlet(t, c, name, "Applied=True/KlusterletApplied",
		"HubConnectionDegraded=True/BootstrapSecretMissing,HubKubeConfigSecretMissing")
	if message := conditionOf(k, fleet.ConditionHubConnectionDegraded).Message; !strings.Contains(message, "under the key config.yaml") {
		t.Errorf("message %s", message)
	}
	secret := &corev1.Secret{ObjectMeta: named(namespace, fleet.SecretBootstrapHubKubeconfig),
		Data: map[string][]byte{fleet.KeyConfig: []byte("url: https://127.0.0.1:1")}}
	framework.Create(t, c, secret)
	awaitMessage := func(text string) {
		t.Helper()
		env.Eventually(t, func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(k), k); err != nil {
				return err
			}
			if condition := conditionOf(k, fleet.ConditionHubConnectionDegraded); !strings.Contains(condition.Message, text) ||
				condition.Reason != "BootstrapSecretError,HubKubeConfigSecretMissing" {
				return fmt.Errorf("condition %v", condition)
			}
			return nil
		})
	}
	awaitMessage(`"https://127.0.0.1:1" is not the HOST:PORT of a gRPC server`)
	secret.Data[fleet.KeyConfig] = []byte("url: 127.0.0.1:1")
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	awaitMessage("connection refused")
	// KL-31: what the agent says of its own connection is in the condition as long as the agent says it.
	framework.Create(t, c, &corev1.ConfigMap{ObjectMeta: named(namespace, fleet.ConfigMapHubConnection),
		Data: map[string]string{fleet.KeyHubConnectionSince: "2026-11-21T12:00:00Z", fleet.KeyHubConnectionMessage: "i/o timeout"}})
	awaitMessage("The agent does not reach the hub since 2026-11-21T12:00:00Z: i/o timeout")
	policy := &networkingv1.NetworkPolicy{ObjectMeta: named(namespace, "klusterlet-agent")}
	env.Eventually(t, func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(policy), policy)
		if err == nil && (len(policy.Spec.Egress) != 1 || policy.Spec.Egress[0].Ports[0].Port != nil) {
			err = fmt.Errorf("agents reach %v", policy.Spec.Egress)
		}
		return err
	})
	agent := awaitExists(t, c, &appsv1.Deployment{ObjectMeta: named(namespace, name+"-registration-agent")})
	if args := strings.Join(agent.Spec.Template.Spec.Containers[0].Args, " "); !strings.Contains(args, "--registration-auth=grpc") {
		t.Errorf("arguments %s", args)
	}
	removeKlusterlet(t, c, name)
}
