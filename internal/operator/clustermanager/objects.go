package clustermanager

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// CRDs that a hub serves and the operator leaves alone: the chart brings its own kind, add-ons theirs.
const (
	crdClusterManagers        = "clustermanagers.operator.open-cluster-management.io"
	crdManagedServiceAccounts = "managedserviceaccounts.authentication.open-cluster-management.io"
	crdGitOpsClusters         = "gitopsclusters.apps.open-cluster-management.io"
	crdApplicationSetReports  = "multiclusterapplicationsetreports.apps.open-cluster-management.io"
	crdSIGPlacementDecisions  = "placementdecisions.multicluster.x-k8s.io"
	crdClusterProfiles        = "clusterprofiles.multicluster.x-k8s.io"
)

// crds are the API of the hub, with conversions by the component that serves them.
func (p planned) crds() (served []*apiextensionsv1.CustomResourceDefinition) {
	for _, crd := range crds.Hub() {
		switch crd.Name {
		case crdClusterManagers, crdManagedServiceAccounts, crdGitOpsClusters:
			continue
		case crdApplicationSetReports:
			if !p.addOn.Enabled(featuregates.GitOpsCluster) {
				continue
			}
		case crdSIGPlacementDecisions:
			if !p.placing.Enabled(featuregates.SIGPlacementDecision) {
				continue
			}
		case crdClusterProfiles:
			if !p.registration.Enabled(featuregates.ClusterProfile) {
				continue
			}
		}
		if conversion := crd.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
			config := conversion.Webhook.ClientConfig
			config.Service.Namespace = p.namespace
			config.Service.Name, config.Service.Port, config.CABundle = p.webhooks().reached(addOnWebhook)
		}
		served = append(served, crd)
	}
	return served
}

// services are those of the management cluster.
func (p planned) services() (services []client.Object) {
	for _, webhook := range p.webhooks() {
		for _, name := range webhook.services() {
			services = append(services, p.service(name, webhook.deployment(), webhookPort, webhook.port()))
		}
	}
	if servesGRPC(p.ClusterManager) {
		services = append(services, grpc{p}.clientService())
	}
	if (placement{p}).servesExplanations() {
		services = append(services, p.service(p.name(placementService), "clustermanager-"+placementController, debugPort, debugPort))
	}
	return services
}

func (p planned) service(name, app string, port, target int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{workload.LabelApp: app},
			Ports:    []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(target), Protocol: corev1.ProtocolTCP}},
		},
	}
}

// hostedAccounts are the service accounts that the pods of a hosted hub run as. They have no permissions: the kubeconfigs have those of the
// accounts of the same names on the hub.
func (p planned) hostedAccounts() (accounts []client.Object) {
	for _, name := range p.accountNames() {
		accounts = append(accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}})
	}
	registration{p}.annotateAWSRole(accounts)
	return accounts
}

// disruptionBudgets are those of the components that have several replicas.
func (p planned) disruptionBudgets() (budgets []client.Object) {
	settings := p.settings()
	for _, component := range p.components() {
		if budget := component.DisruptionBudget(settings); budget != nil {
			budgets = append(budgets, budget)
		}
	}
	return budgets
}

// networkPolicies let the pods of the hub reach anything by UDP, for DNS, and by TCP, and clients reach what the hub serves: nothing else.
// Of what the pods send, no port is named: networks apply policies to the port of the pod or node that a Service, a NodePort or a load
// balancer leads to, which is in no kubeconfig and in no configuration of a broker, and for the Service of DNS need not be 53.
func (p planned) networkPolicies() []client.Object {
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	policy := func(name string, spec networkingv1.NetworkPolicySpec) client.Object {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}, Spec: spec}
	}
	samePods := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	outgoing := workload.AnyPort(corev1.ProtocolUDP, corev1.ProtocolTCP)
	ingress := append(p.webhooks().ports(), tcp(debugPort, grpcPort, 443)...)
	return []client.Object{
		policy("default-deny-all", networkingv1.NetworkPolicySpec{PolicyTypes: both}),
		policy("allow-egress", networkingv1.NetworkPolicySpec{PolicyTypes: both[1:],
			Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: outgoing}}}),
		policy("allow-intra-namespace", networkingv1.NetworkPolicySpec{PolicyTypes: both,
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: samePods}}, Egress: []networkingv1.NetworkPolicyEgressRule{{To: samePods}}}),
		policy("allow-hub-ingress", networkingv1.NetworkPolicySpec{PolicyTypes: both[:1],
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: unique(ingress)}}}),
		policy("allow-prometheus-ingress", networkingv1.NetworkPolicySpec{PolicyTypes: both[:1],
			Ingress: []networkingv1.NetworkPolicyIngressRule{{Ports: unique(append(p.webhooks().metricsPorts(), tcp(workload.HealthPort)...))}}}),
	}
}

func tcp(numbers ...int32) []networkingv1.NetworkPolicyPort {
	return workload.PolicyPorts(corev1.ProtocolTCP, numbers...)
}

func unique(ports []networkingv1.NetworkPolicyPort) (all []networkingv1.NetworkPolicyPort) {
	seen := map[string]bool{}
	for _, port := range ports {
		key := string(cmp.Or(*port.Protocol, corev1.ProtocolTCP)) + port.Port.String()
		if !seen[key] {
			seen[key] = true
			all = append(all, port)
		}
	}
	return all
}
