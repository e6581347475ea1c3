package appliedmanifestwork

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
)

// maxUnpacked is how much an annotation may unpack to, in bytes.
const maxUnpacked = 64 << 20

// pack is the compressed JSON of what can be encoded, as an annotation has it.
func pack(content any) string {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := json.NewEncoder(zip).Encode(content); err != nil {
		panic(err) // It can be encoded, and memory takes it.
	}
	if err := zip.Close(); err != nil {
		panic(err) // The same.
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

// unpack reads what pack wrote.
func unpack(text string, into any) error {
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(zip, maxUnpacked)).Decode(into)
}
