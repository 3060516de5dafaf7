package failure

import v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"

// Classes of failures.
const (
	Unspecified       = v1.FailureClass_FAILURE_CLASS_UNSPECIFIED
	InvalidAnnotation = v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION
	KeyExists         = v1.FailureClass_FAILURE_CLASS_KEY_EXISTS
	AddressDenied     = v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED
	DNSFailed         = v1.FailureClass_FAILURE_CLASS_DNS_FAILED
	ConnectFailed     = v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED
	TLSFailed         = v1.FailureClass_FAILURE_CLASS_TLS_FAILED
	Timeout           = v1.FailureClass_FAILURE_CLASS_TIMEOUT
	TooManyRedirects  = v1.FailureClass_FAILURE_CLASS_TOO_MANY_REDIRECTS
	BadStatus         = v1.FailureClass_FAILURE_CLASS_BAD_STATUS
	BodyTooLarge      = v1.FailureClass_FAILURE_CLASS_BODY_TOO_LARGE
	DigestMismatch    = v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH
	BadResponse       = v1.FailureClass_FAILURE_CLASS_BAD_RESPONSE
	WriteFailed       = v1.FailureClass_FAILURE_CLASS_WRITE_FAILED
	Immutable         = v1.FailureClass_FAILURE_CLASS_IMMUTABLE
	Poison            = v1.FailureClass_FAILURE_CLASS_POISON
	Malformed         = v1.FailureClass_FAILURE_CLASS_MALFORMED
	CredentialsFailed = v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED
	ContentRejected   = v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED
)

// Details of failures.
const (
	NoDetail                 = v1.FailureDetail_FAILURE_DETAIL_UNSPECIFIED
	CertificateAuthority     = v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_AUTHORITY
	CertificateHost          = v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_HOST
	CertificateTime          = v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_TIME
	CertificateInvalid       = v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_INVALID
	Handshake                = v1.FailureDetail_FAILURE_DETAIL_HANDSHAKE
	RedirectLimit            = v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LIMIT
	RedirectDowngrade        = v1.FailureDetail_FAILURE_DETAIL_REDIRECT_DOWNGRADE
	RedirectLocation         = v1.FailureDetail_FAILURE_DETAIL_REDIRECT_LOCATION
	ContentEncoding          = v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING
	Proxy                    = v1.FailureDetail_FAILURE_DETAIL_PROXY
	DeniedScheme             = v1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME
	DeniedHost               = v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST
	HostNotAllowed           = v1.FailureDetail_FAILURE_DETAIL_HOST_NOT_ALLOWED
	DeniedName               = v1.FailureDetail_FAILURE_DETAIL_DENIED_NAME
	DeniedPort               = v1.FailureDetail_FAILURE_DETAIL_DENIED_PORT
	DeniedAddress            = v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS
	DeniedRange              = v1.FailureDetail_FAILURE_DETAIL_DENIED_RANGE
	DeniedURL                = v1.FailureDetail_FAILURE_DETAIL_DENIED_URL
	MessageLimit             = v1.FailureDetail_FAILURE_DETAIL_MESSAGE_LIMIT
	DeniedCredentials        = v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS
	NoCredential             = v1.FailureDetail_FAILURE_DETAIL_NO_CREDENTIAL
	ConnectionRefused        = v1.FailureDetail_FAILURE_DETAIL_CONNECTION_REFUSED
	NoRoute                  = v1.FailureDetail_FAILURE_DETAIL_NO_ROUTE
	Closed                   = v1.FailureDetail_FAILURE_DETAIL_CLOSED
	CutOff                   = v1.FailureDetail_FAILURE_DETAIL_CUT_OFF
	PlainHTTP                = v1.FailureDetail_FAILURE_DETAIL_PLAIN_HTTP
	NotHTTP                  = v1.FailureDetail_FAILURE_DETAIL_NOT_HTTP
	ConnectTimeout           = v1.FailureDetail_FAILURE_DETAIL_CONNECT_TIMEOUT
	DNSUnavailable           = v1.FailureDetail_FAILURE_DETAIL_DNS_UNAVAILABLE
	RetryAfter               = v1.FailureDetail_FAILURE_DETAIL_RETRY_AFTER
	NotJSON                  = v1.FailureDetail_FAILURE_DETAIL_NOT_JSON
	Inapplicable             = v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE
	Costly                   = v1.FailureDetail_FAILURE_DETAIL_COSTLY
	NotCertificates          = v1.FailureDetail_FAILURE_DETAIL_NOT_CERTIFICATES
	BadCertificate           = v1.FailureDetail_FAILURE_DETAIL_BAD_CERTIFICATE
	HTTP2Only                = v1.FailureDetail_FAILURE_DETAIL_HTTP2_ONLY
	TransferEncoding         = v1.FailureDetail_FAILURE_DETAIL_TRANSFER_ENCODING
	BadGzip                  = v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP
	ClientCertificate        = v1.FailureDetail_FAILURE_DETAIL_CLIENT_CERTIFICATE
	ClientCertificateRefused = v1.FailureDetail_FAILURE_DETAIL_CLIENT_CERTIFICATE_REFUSED
	CertificateNameless      = v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_NAMELESS
	CertificateChain         = v1.FailureDetail_FAILURE_DETAIL_CERTIFICATE_CHAIN
)
