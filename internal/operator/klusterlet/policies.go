package klusterlet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/operator/workload"
)

// dnsPorts are those of DNS servers; OpenShift's pods serve at the second one.
var dnsPorts = []int32{53, 5353}

// policies are the NetworkPolicies of the agents' pods. Other pods in their namespace, such as the agents of add-ons that are hosted there,
// are not concerned.
func (l layout) policies(in inputs) []client.Object {
	egress := func(name string, ports ...networkingv1.NetworkPolicyPort) client.Object {
		policy := l.policy(name, networkingv1.PolicyTypeEgress)
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: ports}}
		return policy
	}
	outgoing := in.hubPorts
	if l.aws() != nil && !slices.Contains(outgoing, awsPort) {
		outgoing = append(slices.Clone(outgoing), awsPort)
	}
	deny := l.policy("default-deny-all", networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	metrics := l.policy("klusterlet", networkingv1.PolicyTypeIngress)
	metrics.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: ports(corev1.ProtocolTCP, workload.HealthPort)}}
	objects := []client.Object{deny, metrics, egress("allow-dns-and-api", append(append(
		ports(corev1.ProtocolUDP, dnsPorts...), ports(corev1.ProtocolTCP, dnsPorts...)...), ports(corev1.ProtocolTCP, in.apiPorts...)...)...)}
	if len(outgoing) == 0 { // a rule without ports would allow all of them
		return append(objects, l.policy("klusterlet-agent", networkingv1.PolicyTypeEgress))
	}
	return append(objects, egress("klusterlet-agent", ports(corev1.ProtocolTCP, outgoing...)...))
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

func ports(protocol corev1.Protocol, numbers ...int32) (ports []networkingv1.NetworkPolicyPort) {
	for _, number := range numbers {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(number))})
	}
	return ports
}
