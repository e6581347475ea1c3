package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

const (
	kindClusterManagementAddOn = "ClusterManagementAddOn"
	kindManagedClusterAddOn    = "ManagedClusterAddOn"
)

// maxBody bounds the size of a review. An API server sends all objects of a list in one review, so the bound is far above the size of
// one object: it has room for the add-ons of thousands of clusters. Without it, whoever reaches the port could exhaust the
// memory of the process, which uses several times what it reads.
const maxBody = 128 << 20

// Path is the path at which the CRDs of the add-on kinds expect the handler.
const Path = "/convert"

// Handler serves ConversionReviews of the API group apiextensions.k8s.io/v1 for the add-on kinds. An object that it cannot convert
// fails the review with a message that names the object. A request that is not such a review is answered with 400 or 405, and one that
// is too large with 413.
func Handler() http.Handler { return handler(maxBody) }

func handler(maxBody int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, fmt.Sprintf("method %s is not supported: POST a ConversionReview", r.Method),
				http.StatusMethodNotAllowed)
			return
		}
		review := new(apiextensionsv1.ConversionReview)
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(review)
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			http.Error(w, fmt.Sprintf("the ConversionReview has more than %d bytes: list fewer objects at once, with limit, or in the version that is stored",
				tooLarge.Limit), http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, fmt.Sprintf("the body is not a ConversionReview: %v", err), http.StatusBadRequest)
			return
		}
		want := apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview")
		if got := review.GroupVersionKind(); got != want || review.Request == nil {
			http.Error(w, fmt.Sprintf("the body must be a ConversionReview of %s with a request, not a %q of %q",
				want.GroupVersion(), got.Kind, got.GroupVersion()), http.StatusBadRequest)
			return
		}
		review.Response = respond(review.Request)
		review.Request = nil
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		// An error here means that the API server has closed the connection; it reports that itself.
		_ = json.NewEncoder(w).Encode(review)
	})
}

func respond(request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{
		UID:              request.UID,
		ConvertedObjects: make([]runtime.RawExtension, 0, len(request.Objects)),
		Result:           metav1.Status{Status: metav1.StatusSuccess},
	}
	for i := range request.Objects {
		converted, err := convert(request.Objects[i].Raw, request.DesiredAPIVersion)
		if err != nil {
			response.ConvertedObjects = nil
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			return response
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	return response
}

// convert converts one object, given as JSON, to an API version.
func convert(data []byte, desired string) ([]byte, error) {
	object := new(metav1.PartialObjectMetadata)
	if err := utiljson.Unmarshal(data, object); err != nil {
		return nil, fmt.Errorf("decode the object to convert: %w", err)
	}
	if object.APIVersion == desired {
		return data, nil
	}
	converted, err := convertKind(data, object.GroupVersionKind(), desired)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s from %s to %s: %w",
			object.Kind, describe(object), object.APIVersion, desired, err)
	}
	return json.Marshal(converted)
}

func describe(object *metav1.PartialObjectMetadata) string {
	if object.Namespace == "" {
		return object.Name
	}
	return object.Namespace + "/" + object.Name
}

func convertKind(data []byte, from schema.GroupVersionKind, desired string) (runtime.Object, error) {
	v1alpha1, v1beta1 := addonv1alpha1.GroupVersion, addonv1beta1.GroupVersion
	switch {
	case from == v1alpha1.WithKind(kindClusterManagementAddOn) && desired == v1beta1.String():
		in, err := decode[addonv1alpha1.ClusterManagementAddOn](data)
		if err != nil {
			return nil, err
		}
		return ClusterManagementAddOnToV1Beta1(in), nil
	case from == v1beta1.WithKind(kindClusterManagementAddOn) && desired == v1alpha1.String():
		in, err := decode[addonv1beta1.ClusterManagementAddOn](data)
		if err != nil {
			return nil, err
		}
		return ClusterManagementAddOnToV1Alpha1(in), nil
	case from == v1alpha1.WithKind(kindManagedClusterAddOn) && desired == v1beta1.String():
		in, err := decode[addonv1alpha1.ManagedClusterAddOn](data)
		if err != nil {
			return nil, err
		}
		return ManagedClusterAddOnToV1Beta1(in), nil
	case from == v1beta1.WithKind(kindManagedClusterAddOn) && desired == v1alpha1.String():
		in, err := decode[addonv1beta1.ManagedClusterAddOn](data)
		if err != nil {
			return nil, err
		}
		return ManagedClusterAddOnToV1Alpha1(in)
	default:
		return nil, fmt.Errorf("only %s and %s convert, between %s and %s",
			kindClusterManagementAddOn, kindManagedClusterAddOn, v1alpha1, v1beta1)
	}
}

// decode is case-sensitive in field names, because defaultconfigReferences and defaultConfigReferences are two fields.
func decode[T any](data []byte) (*T, error) {
	object := new(T)
	if err := utiljson.Unmarshal(data, object); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return object, nil
}
