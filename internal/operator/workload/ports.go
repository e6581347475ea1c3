package workload

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// DNSPorts are those of DNS servers by UDP, for a NetworkPolicy; OpenShift's pods serve at the second one.
func DNSPorts() []networkingv1.NetworkPolicyPort { return PolicyPorts(corev1.ProtocolUDP, 53, 5353) }

// PolicyPorts are ports of a NetworkPolicy.
func PolicyPorts(protocol corev1.Protocol, numbers ...int32) (ports []networkingv1.NetworkPolicyPort) {
	for _, number := range numbers {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(number))})
	}
	return ports
}
