package klusterlet

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/operator/workload"
)

// policies are the NetworkPolicies of the agents' pods. Other pods in their namespace, such as the agents of add-ons that are hosted there,
// are not concerned. Of what the pods send, UDP for DNS and TCP, no port is named: networks apply policies to the port of the pod or node
// that a Service, a NodePort or a load balancer leads to, which is in no kubeconfig, and for the Service of DNS need not be 53.
func (l layout) policies() []client.Object {
	deny := l.policy("default-deny-all", networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	metrics := l.policy("klusterlet", networkingv1.PolicyTypeIngress)
	metrics.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		Ports: workload.PolicyPorts(corev1.ProtocolTCP, workload.HealthPort)}}
	api := l.policy("allow-dns-and-api", networkingv1.PolicyTypeEgress)
	api.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: workload.AnyPort(corev1.ProtocolUDP, corev1.ProtocolTCP)}}
	hub := l.policy("klusterlet-agent", networkingv1.PolicyTypeEgress)
	hub.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: workload.AnyPort(corev1.ProtocolTCP)}}
	return []client.Object{deny, metrics, api, hub}
}

func (l layout) policy(name string, types ...networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: types,
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: workload.LabelApp, Operator: metav1.LabelSelectorOpIn, Values: agentApps}}},
		},
	}
}
