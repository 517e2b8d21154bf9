// A link on another site led here, and browsers keep the session's cookie from such requests: the page comes again from its own
// site. Its place waits meanwhile, for an address that differs in the place alone would not be loaded again.
if (location.hash) sessionStorage.setItem("place", location.hash);
location.replace(location.pathname + location.search);
