package access

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// Exposed are the services of managed clusters that users of a hub may reach through it, on all clusters alike.
type Exposed []ExposedService

// ExposedService is a service, with one of its ports or all of them.
type ExposedService struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	// Port is a number; none is any.
	Port *intstr.IntOrString `json:"port,omitempty"`
	// Protocol is http or https; none is both.
	Protocol string `json:"protocol,omitempty"`
}

// ParseExposed reads a YAML list of services, and refuses what it does not know.
func ParseExposed(text string) (Exposed, error) {
	var parsed Exposed
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		return nil, err
	}
	for i := range parsed {
		if err := parsed[i].check(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return parsed, nil
}

func (e *ExposedService) check() error {
	if e.Namespace == "" || e.Service == "" {
		return fmt.Errorf("namespace is %q and service is %q; both have to be set", e.Namespace, e.Service)
	}
	if err := checkName(e.Namespace, e.Service); err != nil {
		return err
	}
	if e.Protocol != "" && defaultPorts[e.Protocol] == 0 {
		return fmt.Errorf("protocol is %q; use http or https, or leave it out for both", e.Protocol)
	}
	if e.Port == nil {
		return nil
	}
	_, err := readPort(e.Port.String())
	return err
}

// Allow reports whether the service is one of them.
func (e Exposed) Allow(service *Service) bool {
	return slices.ContainsFunc(e, func(one ExposedService) bool {
		return one.Namespace == service.Namespace && one.Service == service.Name && (one.Protocol == "" || one.Protocol == service.Protocol) &&
			(one.Port == nil || one.hasPort(service.Port))
	})
}

func (e *ExposedService) hasPort(port int) bool {
	named, err := readPort(e.Port.String())
	return err == nil && named == port
}
