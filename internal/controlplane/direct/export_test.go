package direct

import "k8s.io/apiserver/pkg/storage"

// HasCache reports whether a storage has begun a watch cache.
func HasCache(s storage.Interface) bool {
	demanded, ok := s.(*onDemand)
	return ok && demanded.cache.Load() != nil
}
