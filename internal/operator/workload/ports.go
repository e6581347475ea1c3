package workload

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// AnyPort is every port of each of the protocols, for a NetworkPolicy.
func AnyPort(protocols ...corev1.Protocol) (ports []networkingv1.NetworkPolicyPort) {
	for _, protocol := range protocols {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol})
	}
	return ports
}

// PolicyPorts are ports of a NetworkPolicy.
func PolicyPorts(protocol corev1.Protocol, numbers ...int32) (ports []networkingv1.NetworkPolicyPort) {
	for _, number := range numbers {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(number))})
	}
	return ports
}
