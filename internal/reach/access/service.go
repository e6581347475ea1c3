package access

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// headerService of a request in a tunnel is the service that the hub has let it through to. A request without it is one to the API server,
// whatever its path. Strip drops it, as all headers by which a hub speaks to an agent.
const headerService = "X-Remote-Service"

// Protocols of services.
const (
	HTTP  = "http"
	HTTPS = "https"
)

// defaultPorts are those of a service for which a request names none.
var defaultPorts = map[string]int{HTTP: 80, HTTPS: 443}

// Service is a port of a service of a managed cluster.
type Service struct {
	Protocol, Namespace, Name string
	Port                      int
}

// ServiceOf reads which service a request is for that has the path
//
//	/api/v1/namespaces/NAMESPACE/services/[PROTOCOL:]NAME[:PORT]/proxy-service[/PATH]
//
// on the cluster, and PATH with its slash as it is escaped. It returns nil for any other path, which is one of the API server.
func ServiceOf(u *url.URL) (service *Service, path string, err error) {
	parts := strings.SplitN(u.Path, "/", 9)
	if len(parts) < 8 || strings.Join(parts[:4], "/") != "/api/v1/namespaces" || parts[5] != "services" || parts[7] != "proxy-service" {
		return nil, "", nil
	}
	path, plain := strings.CutPrefix(u.EscapedPath(), strings.Join(parts[:8], "/"))
	if !plain || path != "" && path[0] != '/' {
		return nil, "", fmt.Errorf("the path %q names a service by escapes; write what comes before PATH as "+
			"/api/v1/namespaces/NAMESPACE/services/[PROTOCOL:]NAME[:PORT]/proxy-service/PATH, without any", u.EscapedPath())
	}
	if path == "" {
		path = "/"
	}
	service, err = readService(parts[4], parts[6])
	return service, path, err
}

// readService reads what says which service of a namespace is meant. Of two parts the first is a protocol unless the second is a number.
func readService(namespace, written string) (*Service, error) {
	s, port := &Service{Protocol: HTTPS, Namespace: namespace}, ""
	switch parts := strings.Split(written, ":"); {
	case len(parts) == 1:
		s.Name = written
	case len(parts) == 2 && defaultPorts[parts[0]] != 0 && !isNumber(parts[1]):
		s.Protocol, s.Name = parts[0], parts[1]
	case len(parts) == 2:
		s.Name, port = parts[0], parts[1]
	case len(parts) == 3:
		s.Protocol, s.Name, port = parts[0], parts[1], parts[2]
	default:
		return nil, fmt.Errorf("%q does not name a service; write it as [PROTOCOL:]NAME[:PORT], such as web, web:8443 or http:web:8080", written)
	}
	if s.Port = defaultPorts[s.Protocol]; s.Port == 0 {
		return nil, fmt.Errorf("%q names a service by the protocol %q; use http or https", written, s.Protocol)
	}
	if err := checkName(s.Namespace, s.Name); err != nil {
		return nil, err
	}
	if port == "" {
		return s, nil
	}
	var err error
	if s.Port, err = readPort(port); err != nil {
		return nil, fmt.Errorf("service %s: %w", s.Key(), err)
	}
	return s, nil
}

func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 64)
	return err == nil
}

func checkName(namespace, name string) error {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return fmt.Errorf("namespace %q: %s", namespace, strings.Join(problems, ", "))
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("service %q: %s", name, strings.Join(problems, ", "))
	}
	return nil
}

// readPort takes numbers alone: nobody on the way knows the names that a service gives its ports.
func readPort(text string) (int, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("port %q is no number from 1 to 65535; ports are not known by their names here", text)
	}
	return int(port), nil
}

// Key has namespace and name.
func (s *Service) Key() string { return s.Namespace + "/" + s.Name }

// Host is the name of the service in the DNS of its cluster.
func (s *Service) Host() string { return s.Name + "." + s.Namespace + ".svc" }

// URL is the service as it is reached in its cluster.
func (s *Service) URL() *url.URL {
	host := s.Host()
	if s.Port != defaultPorts[s.Protocol] {
		host = net.JoinHostPort(host, strconv.Itoa(s.Port))
	}
	return &url.URL{Scheme: s.Protocol, Host: host}
}

// Path is what comes before the path of a request for the service.
func (s *Service) Path() string {
	return fmt.Sprintf("/api/v1/namespaces/%s/services/%s:%s:%d/proxy-service", s.Namespace, s.Protocol, s.Name, s.Port)
}

// Mark says in the headers of a request that it is let through to the service.
func (s *Service) Mark(header http.Header) { header.Set(headerService, s.URL().String()) }

// MarkedService returns the service that a request has been let through to, and the path there. It is nil if the request is one to the
// API server.
func MarkedService(r *http.Request) (service *Service, path string, err error) {
	mark := r.Header.Get(headerService)
	if mark == "" {
		return nil, "", nil
	}
	service, path, err = ServiceOf(r.URL)
	if err == nil && (service == nil || service.URL().String() != mark) {
		err = fmt.Errorf("the hub has let a request through to %s that has the path %q", mark, r.URL.Path)
	}
	return service, path, err
}
