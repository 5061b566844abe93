/**
 * Python 2 names and what Python 3 calls them. Python 3 itself writes the old names at protocol 2, so they are mapped
 * always, as PyTorch's weights-only loading does.
 *
 * Source: https://github.com/python/cpython/blob/v3.13.0/Lib/_compat_pickle.py, with its lists of exceptions as one rule.
 *
 * @module
 */

/** Modules, old > new. */
const MODULES: ReadonlyMap<string, string> = pairs(`
  BaseHTTPServer>http.server CGIHTTPServer>http.server ConfigParser>configparser Cookie>http.cookies
  Dialog>tkinter.dialog DocXMLRPCServer>xmlrpc.server FileDialog>tkinter.filedialog HTMLParser>html.parser
  Queue>queue ScrolledText>tkinter.scrolledtext SimpleDialog>tkinter.simpledialog SimpleHTTPServer>http.server
  SimpleXMLRPCServer>xmlrpc.server SocketServer>socketserver StringIO>io Tix>tkinter.tix
  Tkconstants>tkinter.constants Tkdnd>tkinter.dnd Tkinter>tkinter UserDict>collections UserList>collections
  UserString>collections __builtin__>builtins _abcoll>collections.abc _elementtree>xml.etree.ElementTree
  _winreg>winreg anydbm>dbm cPickle>pickle cStringIO>io commands>subprocess cookielib>http.cookiejar copy_reg>copyreg
  dbhash>dbm.bsd dbm>dbm.ndbm dumbdbm>dbm.dumb dummy_thread>_dummy_thread exceptions>builtins gdbm>dbm.gnu
  htmlentitydefs>html.entities httplib>http.client markupbase>_markupbase repr>reprlib robotparser>urllib.robotparser
  test.test_support>test.support thread>_thread tkColorChooser>tkinter.colorchooser
  tkCommonDialog>tkinter.commondialog tkFileDialog>tkinter.filedialog tkFont>tkinter.font
  tkMessageBox>tkinter.messagebox tkSimpleDialog>tkinter.simpledialog ttk>tkinter.ttk urllib2>urllib.request
  urlparse>urllib.parse whichdb>dbm xmlrpclib>xmlrpc.client
  torch.tensor>torch._tensor
`);

/** Names whose module or name changes in another way than their module does, old > new. */
const NAMES: ReadonlyMap<string, string> = pairs(`
  UserDict.IterableUserDict>collections.UserDict __builtin__.basestring>builtins.str __builtin__.intern>sys.intern
  __builtin__.long>builtins.int __builtin__.reduce>functools.reduce __builtin__.unichr>builtins.chr
  __builtin__.unicode>builtins.str __builtin__.xrange>builtins.range
  _multiprocessing.Connection>multiprocessing.connection.Connection _socket.fromfd>socket.fromfd
  exceptions.StandardError>builtins.Exception itertools.ifilter>builtins.filter
  itertools.ifilterfalse>itertools.filterfalse itertools.imap>builtins.map itertools.izip>builtins.zip
  itertools.izip_longest>itertools.zip_longest
  multiprocessing.AuthenticationError>multiprocessing.context.AuthenticationError
  multiprocessing.BufferTooShort>multiprocessing.context.BufferTooShort
  multiprocessing.ProcessError>multiprocessing.context.ProcessError
  multiprocessing.TimeoutError>multiprocessing.context.TimeoutError
  multiprocessing.forking.Popen>multiprocessing.popen_fork.Popen
  multiprocessing.process.Process>multiprocessing.context.Process socket._socketobject>socket.SocketType
  urllib.ContentTooShortError>urllib.error.ContentTooShortError urllib.getproxies>urllib.request.getproxies
  urllib.pathname2url>urllib.request.pathname2url urllib.quote>urllib.parse.quote
  urllib.quote_plus>urllib.parse.quote_plus urllib.unquote>urllib.parse.unquote
  urllib.unquote_plus>urllib.parse.unquote_plus urllib.url2pathname>urllib.request.url2pathname
  urllib.urlcleanup>urllib.request.urlcleanup urllib.urlencode>urllib.parse.urlencode
  urllib.urlopen>urllib.request.urlopen urllib.urlretrieve>urllib.request.urlretrieve
  urllib2.HTTPError>urllib.error.HTTPError urllib2.URLError>urllib.error.URLError
`);

function pairs(text: string): Map<string, string> {
  return new Map(
    text
      .trim()
      .split(/\s+/)
      .map((pair) => pair.split(">") as [string, string]),
  );
}

/** The Python 3 module and name of a global. */
export function python3Name(module: string, name: string): readonly [module: string, name: string] {
  const renamed = NAMES.get(`${module}.${name}`);
  if (renamed !== undefined) {
    const dot = renamed.lastIndexOf(".");
    return [renamed.slice(0, dot), renamed.slice(dot + 1)];
  }
  return [MODULES.get(module) ?? module, name];
}
