package backup

import (
	"encoding/json"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

// EncryptionFlag names the file with the keys that Secrets are encrypted by at rest.
const EncryptionFlag = "--encryption-provider-config"

// File is one that users have given a hub. A backup does not have it.
type File struct {
	// Setting is the flag, or the field of ocmconfig.yaml, that names it.
	Setting string `json:"setting"`
	// Path is where the hub has it.
	Path string `json:"path"`
}

// encryptionProviders are the providers that the file of EncryptionFlag among these has. One that cannot be read has none: that the hub
// needs it is known without.
func encryptionProviders(files []File) []string {
	for _, file := range files {
		if file.Setting != EncryptionFlag {
			continue
		}
		content, err := os.ReadFile(file.Path)
		if err != nil {
			return nil
		}
		return providersIn(content)
	}
	return nil
}

// providersIn are the providers of an EncryptionConfiguration that encrypt, each once.
func providersIn(content []byte) (names []string) {
	var config struct {
		Resources []struct {
			Providers []map[string]json.RawMessage `json:"providers"`
		} `json:"resources"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil
	}
	for _, resource := range config.Resources {
		for _, provider := range resource.Providers {
			for name := range provider {
				if name != "identity" && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}
