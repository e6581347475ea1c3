package fakehub

import "encoding/pem"

// CA is the certificate to verify the hub with, in PEM.
func (h *Hub) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}
