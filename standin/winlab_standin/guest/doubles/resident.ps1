# Runs many scripts in one process of the engine: resident.py starts it, and asks at a socket. Each script runs as in a
# process of its own, since it is the engine's own Main that runs it: with a runspace, doubles, environment, folder and
# standard streams of its own. What else a process would take with it when it ends is put back after each script.
# A request is a line of JSON: words (the engine's arguments), environment, folder, streams (the files for input, output
# and errors). The answers are the line "begun", and then the exit code. Who asks and goes away before that ends it all.
param([string]$Socket, [int]$Idle)
$ErrorActionPreference = 'Stop'
$hidden = [System.Reflection.BindingFlags]'NonPublic, Static'
$full = 250MB # of memory: with more it makes room for a fresh process

# what .NET does not have: to put others in the place of the standard streams, which programs inherit
$module = [System.Reflection.Emit.AssemblyBuilder]::DefineDynamicAssembly('libc', 'Run').DefineDynamicModule('libc')
$type = $module.DefineType('Libc', 'Public')
foreach ($row in @('open', [string], [int]), @('dup2', [int], [int]), @('close', [int]), @('kill', [int], [int])) {
    $name, $takes = $row
    $made = $type.DefinePInvokeMethod($name, 'libc', 'Public, Static, PinvokeImpl', 'Standard', [int], [type[]]$takes, 'Winapi', 'Ansi')
    $made.SetImplementationFlags('PreserveSig')
}
$libc = $type.CreateType()
function Connect-Stream([string[]]$To) {
    for ($at = 0; $at -lt 3; $at++) {
        $file = $libc::open($To[$at], [int]($at -gt 0)) # to read, or to write
        if ($file -lt 0 -or $libc::dup2($file, $at) -lt 0) { throw "The stream $($To[$at]) can't be opened." }
        $libc::close($file) | Out-Null
    }
    foreach ($field in [Console].GetFields($hidden)) {
        if ($field.Name -in 's_in', 's_out', 's_error', 's_inputEncoding', 's_outputEncoding') { $field.SetValue($null, $null) }
        if ($field.Name -in 's_isOutTextWriterRedirected', 's_isErrorTextWriterRedirected') { $field.SetValue($null, $false) }
    }
}
function Start-Main([string[]]$Words) {
    $expression = [System.Linq.Expressions.Expression]
    $call = $expression::Call([Winlab.PowerShell.Program].GetMethod('Main'), $expression::Constant($Words))
    $run = $expression::Lambda([Func[int]], $call, [System.Linq.Expressions.ParameterExpression[]]@()).Compile()
    # LongRunning: a thread of its own, which ends with it
    return [System.Threading.Tasks.Task]::Factory.StartNew(
        $run, [System.Threading.CancellationToken]::None, 'LongRunning', [System.Threading.Tasks.TaskScheduler]::Default)
}

$listener = New-Object System.Net.Sockets.Socket (
    [System.Net.Sockets.AddressFamily]::Unix), ([System.Net.Sockets.SocketType]::Stream), ([System.Net.Sockets.ProtocolType]::Unspecified)
$listener.Bind((New-Object System.Net.Sockets.UnixDomainSocketEndPoint $Socket))
$listener.Listen(8)
$goes = $false
while (-not $goes -and $listener.Poll([TimeSpan]::FromSeconds($Idle), 'SelectRead')) {
    $caller = $listener.Accept()
    $stream = New-Object System.Net.Sockets.NetworkStream $caller
    $line = [System.IO.StreamReader]::new($stream).ReadLine()
    if ($line) {
        $request = ConvertFrom-Json -InputObject $line
        foreach ($name in @([Environment]::GetEnvironmentVariables().Keys)) { [Environment]::SetEnvironmentVariable($name, [NullString]::Value) }
        foreach ($row in $request.environment.PSObject.Properties) { [Environment]::SetEnvironmentVariable($row.Name, $row.Value) }
        [Environment]::CurrentDirectory = $request.folder
        Connect-Stream $request.streams
        $stream.Write([System.Text.Encoding]::ASCII.GetBytes("begun`n"))
        $script = Start-Main $request.words
        # the caller says no more: there is something to read when it has gone
        while (-not ([System.Threading.Tasks.Task]::WaitAny([System.Threading.Tasks.Task[]]@($script), 200) -eq 0)) {
            if ($caller.Poll(0, 'SelectRead')) { $libc::kill(0, 9) | Out-Null } # with all that the script has started
        }
        if ($script.IsFaulted) { [Environment]::FailFast("$($script.Exception)") } # as it would end a process of its own
        $code = $script.Result
        Connect-Stream '/dev/null', '/dev/null', '/dev/null'
        [Environment]::CurrentDirectory = '/'
        [Winlab.PowerShell.HostUI]::Interactive = $true
        [Winlab.PowerShell.HostUI]::Transcript = $null
        # what the script has left open
        $script = $null
        [GC]::Collect()
        [GC]::WaitForPendingFinalizers()
        # what it has left at work ends with its process
        $goes = [runspace].GetProperty('RunspaceList', $hidden).GetValue($null).Count -gt 1 -or [Environment]::WorkingSet -gt $full
        $stream.Write([System.Text.Encoding]::ASCII.GetBytes("$code`n"))
    }
    $stream.Dispose()
    $caller.Dispose()
}
[Environment]::Exit(0)
