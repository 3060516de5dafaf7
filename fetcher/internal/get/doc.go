// Package get makes one GET, safely.
//
// The server counts as hostile until the digest proves otherwise. Everything it sends is limited in time and size, only
// HTTP/1.1 is used, and only the body of a 200 is accepted, uncoded or as gzip. Descriptions of failures contain no
// text of the server. Package egress decides which addresses may be reached, for every hop of every redirect.
//
// Client.Do makes an exchange. It follows redirects, and for each hop finds the credentials (withCredentials), adds
// conditions (withConditions), and sends the request (hopTo) on a connection of its own (transport). A body is read in
// body.go, and a failure gets its class in classify.go.
package get
