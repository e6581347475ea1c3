package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

const (
	// probeInterval is how often an aggregated API is probed; there is no event when it goes.
	probeInterval = 30 * time.Second
	// answerTimeout is how long it may take to answer.
	answerTimeout = 5 * time.Second
	probeWorkers  = 4

	reasonUnreachable = "FailedDiscoveryCheck"
	reasonPassed      = "Passed"
)

// availability keeps the condition Available of APIServices that other servers answer for. One that is down makes
// discovery incomplete, and with that blocks the deletion of namespaces: it must be seen.
type availability struct {
	services  *serviceResolver
	client    apiregistrationclient.Interface
	lister    apiregistrationlisters.APIServiceLister
	proxyCert func() (tls.Certificate, error)
	queue     workqueue.TypedRateLimitingInterface[string]
}

// watchAggregatedAPIs runs until ctx ends.
func (h *hub) watchAggregatedAPIs(ctx context.Context) error {
	client, err := apiregistrationclient.NewForConfig(h.loopback)
	if err != nil {
		return err
	}
	informer := h.server.APIRegistrationInformers.Apiregistration().V1().APIServices()
	a := &availability{
		services:  h.services,
		client:    client,
		lister:    informer.Lister(),
		proxyCert: func() (tls.Certificate, error) { return tls.LoadX509KeyPair(h.proxyCertFile, h.proxyKeyFile) },
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { a.enqueue(object) },
		UpdateFunc: func(old, object any) {
			if !apiequality.Semantic.DeepEqual(old.(*apiregistrationv1.APIService).Spec, object.(*apiregistrationv1.APIService).Spec) {
				a.enqueue(object)
			}
		},
	})
	if err != nil {
		return err
	}
	for range probeWorkers {
		go a.work(ctx)
	}
	<-ctx.Done()
	a.queue.ShutDown()
	return nil
}

func (a *availability) enqueue(object any) {
	if api := object.(*apiregistrationv1.APIService); api.Spec.Service != nil {
		a.queue.Add(api.Name)
	}
}

func (a *availability) work(ctx context.Context) {
	for {
		name, stop := a.queue.Get()
		if stop {
			return
		}
		again, err := a.sync(ctx, name)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot report on an aggregated API; trying again", "apiService", name)
			a.queue.AddRateLimited(name)
		} else {
			a.queue.Forget(name)
			if again {
				a.queue.AddAfter(name, probeInterval)
			}
		}
		a.queue.Done(name)
	}
}

// sync probes one APIService and writes its condition when it changed. again says whether to come back.
func (a *availability) sync(ctx context.Context, name string) (again bool, err error) {
	api, err := a.lister.Get(name)
	if apierrors.IsNotFound(err) || err == nil && api.Spec.Service == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	condition := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue,
		LastTransitionTime: metav1.Now(), Reason: reasonPassed, Message: "all checks passed",
	}
	if problem := a.probe(ctx, api); problem != nil {
		condition.Status, condition.Reason = apiregistrationv1.ConditionFalse, reasonUnreachable
		condition.Message = fmt.Sprintf("%v; until it answers, namespaces cannot be deleted: repair the service, or delete this APIService",
			problem)
	}
	had := apiregistrationhelper.GetAPIServiceConditionByType(api, apiregistrationv1.Available)
	if had != nil && had.Status == condition.Status && had.Message == condition.Message {
		return true, nil
	}
	if condition.Status == apiregistrationv1.ConditionFalse {
		klog.FromContext(ctx).Info("An aggregated API is down", "apiService", name, "message", condition.Message)
	}
	api = api.DeepCopy()
	apiregistrationhelper.SetAPIServiceCondition(api, condition)
	_, err = a.client.ApiregistrationV1().APIServices().UpdateStatus(ctx, api, metav1.UpdateOptions{})
	return true, err
}

// probe requests the discovery document, as the aggregator will, with its certificate and on behalf of itself.
func (a *availability) probe(ctx context.Context, api *apiregistrationv1.APIService) error {
	service := api.Spec.Service
	target, err := a.services.ResolveEndpoint(service.Namespace, service.Name, *service.Port)
	if err != nil {
		return err
	}
	target.Path = "/apis/" + api.Spec.Group + "/" + api.Spec.Version
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	transport.SetAuthProxyHeaders(request, "system:kube-aggregator", "", []string{"system:masters"}, nil)
	client, err := a.httpClient(api)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("service %s/%s does not answer: %w", service.Namespace, service.Name, err)
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("service %s/%s answers GET %s with %s", service.Namespace, service.Name, target, answer.Status)
	}
	return nil
}

func (a *availability) httpClient(api *apiregistrationv1.APIService) (*http.Client, error) {
	own, err := a.proxyCert()
	if err != nil {
		return nil, fmt.Errorf("read the proxy certificate: %w", err)
	}
	config := &tls.Config{
		Certificates:       []tls.Certificate{own},
		ServerName:         api.Spec.Service.Name + "." + api.Spec.Service.Namespace + ".svc",
		InsecureSkipVerify: api.Spec.InsecureSkipTLSVerify, //nolint:gosec // the APIService says so
	}
	if len(api.Spec.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(api.Spec.CABundle)
	}
	// The one that a redirect names would get the identity of the aggregator.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, CheckRedirect: stay}, nil
}
