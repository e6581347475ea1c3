package cloudevents

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// ResourceVersions is the data of a request for specs, of the type DATATYPE.spec.resync_request: what the agent has already. The source
// answers with what is newer, or older since a restore, with everything that is being deleted, and, for what it does not have any more,
// with events of the action [Delete].
type ResourceVersions struct {
	Versions []ResourceVersion `json:"resourceVersions"`
}

// EndMark is the prefix of the ID by which an agent ends such a request. It is of a resource that nobody has, so that the answer about it
// comes behind everything else. It comes behind all UIDs, too: sources may answer in the order of IDs.
const EndMark = "zz-"

// ResourceVersion is the version in which an agent has a resource: the generation of a ManifestWork, the resource version of everything
// else.
type ResourceVersion struct {
	ResourceID      string `json:"resourceID"`
	ResourceVersion int64  `json:"resourceVersion"`
}

// StatusHashes is the data of a request for statuses, of the type DATATYPE.status.resync_request: what the source has already. The agent
// answers with the statuses that have another hash; with all of them, if the list is empty.
type StatusHashes struct {
	Hashes []StatusHash `json:"statusHashes"`
}

// StatusHash is the hash that [HashStatus] makes of a status that a source has.
type StatusHash struct {
	ResourceID string `json:"resourceID"`
	StatusHash string `json:"statusHash"`
}

// HashStatus returns the SHA-256 of the status to which a pointer points, in hexadecimal digits: of its JSON with the keys of all objects
// in order, as the SDK has it.
func HashStatus(status any) (string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return "", fmt.Errorf("hash a status, which is a %T: %w", status, err)
	}
	data, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("hash a status, which is a %T: %w", status, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}
