# winlab bootstrap: makes a fresh Windows Server reachable. Runs at the first logon, from the answer ISO, as
# Administrator. The script is the same for every node: what differs is in node.json beside it. It can be run again.
# Windows PowerShell 5.1. Progress goes to the first serial port, a full log to C:\winlab\bootstrap.log.
# global: functions of modules, such as New-NetFirewallRule, don't see the preference of a script that '&' calls
$global:ErrorActionPreference = 'Stop'
$here = Split-Path -Parent $PSCommandPath

$tries = 5
function Write-Phase([string]$Text) {
    for ($try = 1; $try -le $tries; $try++) {
        try {
            $port = New-Object System.IO.Ports.SerialPort 'COM1', 115200
            $port.WriteTimeout = 2000 # milliseconds
            $port.Open()
            $port.WriteLine("winlab: $Text")
            $port.Close()
            return
        } catch {
            # only one program can have it open, and the other one may be about to close it
            Write-Warning "The serial port can't be written: $_"
            Start-Sleep -Seconds 2
        }
    }
    $script:tries = 1
}

# PowerShell does not treat a native program's failure as an error; this function does
function Invoke-Native([string]$Program, [string[]]$Arguments, [int[]]$Fine = @(0)) {
    & $Program $Arguments | Out-Host
    if ($LASTEXITCODE -notin $Fine) {
        throw "$Program $($Arguments -join ' ') ended with exit code $LASTEXITCODE"
    }
}

# Runs an installer of something that is not essential. It has ten minutes; a failure is only a warning: $Warning and
# the exit code. Start-Process -Wait has no limit, and also waits for every process that the program has started
$installerLimit = 600000 # milliseconds
function Install-Extra([string]$Warning, [string]$Program, [string[]]$Arguments) {
    try {
        $run = Start-Process -FilePath $Program -ArgumentList $Arguments -PassThru
        $null = $run.Handle # without this there is no exit code later
        if (-not $run.WaitForExit($installerLimit)) {
            & taskkill.exe /f /t /pid $run.Id | Out-Host
            Write-Warning "$Warning 1460: it took more than 10 minutes"
        } elseif ($run.ExitCode -notin 0, 3010) {
            Write-Warning "$Warning $($run.ExitCode)"
        }
    } catch {
        Write-Warning "$Warning none: $_"
    }
}

# Lets only SYSTEM and Administrators write there. By default every user can write in a folder at the root of a disk;
# with such a folder sshd 9.4 and later does not even start
function Set-AdminAcl([string]$Path) {
    $acl = New-Object System.Security.AccessControl.DirectorySecurity
    $acl.SetSecurityDescriptorSddlForm('O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;AU)')
    Set-Acl -Path $Path -AclObject $acl
}

# Writes what helps to find a fault to the serial port, because no one may be able to log in
function Write-Dump {
    $parts = [ordered]@{
        'bootstrap.log' = { Get-Content -LiteralPath 'C:\winlab\bootstrap.log' -Tail 80 }
        'Setup' = {
            Get-Content -Path 'C:\Windows\Panther\setuperr.log', 'C:\Windows\Panther\UnattendGC\setuperr.log' -Tail 40 `
                -ErrorAction SilentlyContinue
        }
        'build' = { cmd.exe /c ver }
        'network' = { ipconfig.exe /all }
        'adapters' = { Get-NetAdapter | Format-List -Property Name, InterfaceDescription, Status, MacAddress }
        'devices' = {
            Get-PnpDevice -PresentOnly | Where-Object { "$($_.Status)" -ne 'OK' } |
                Format-List -Property FriendlyName, InstanceId, Problem
        }
        'firewall' = { Get-NetFirewallProfile | Format-List -Property Name, Enabled, AllowInboundRules }
        'listeners' = { Get-ChildItem -Path 'WSMan:\localhost\Listener' | Format-List }
        'services' = { Get-Service -Name 'WinRM', 'sshd', 'hns' | Format-List -Property Name, Status, StartType }
        'events' = {
            Get-WinEvent -FilterHashtable @{ LogName = 'System', 'Application'; Level = 1, 2 } -MaxEvents 40 |
                Format-List -Property TimeCreated, ProviderName, Id, Message
        }
        'disks' = { Get-Volume | Format-List -Property DriveLetter, FileSystem, SizeRemaining, Size }
    }
    Write-Phase 'BEGIN dump'
    foreach ($name in $parts.Keys) {
        $text = try { & $parts[$name] 2>&1 | Out-String } catch { "$_" }
        Write-Phase "dump of ${name}:`r`n$text"
    }
    Write-Phase 'END dump'
}

# Copies a key of sshd; only SYSTEM and Administrators have access to it
function Copy-Key([string]$Name, [string]$To) {
    Copy-Item -Path (Join-Path $here $Name) -Destination $To -Force
    # A file copied from a CD is read-only
    Set-ItemProperty -Path $To -Name IsReadOnly -Value $false
    Invoke-Native 'icacls.exe' @($To, '/inheritance:r', '/grant', '*S-1-5-32-544:F', '/grant', '*S-1-5-18:F')
}

# OpenSSH: part of Windows Server 2025; on earlier releases from the bundled package or the capability
function Install-Sshd {
    if (-not (Get-Service -Name 'sshd' -ErrorAction SilentlyContinue)) {
        $package = Join-Path $here 'OpenSSH-Win64.zip'
        if (Test-Path -Path $package) {
            Expand-Archive -Path $package -DestinationPath 'C:\Program Files' -Force
            # it asks whether to continue; some releases have no parameter for the answer
            $install = 'C:\Program Files\OpenSSH-Win64\install-sshd.ps1'
            try {
                & $install -Confirm:$false
            } catch [System.Management.Automation.ParameterBindingException] {
                & $install
            }
        } else {
            # from Windows Update; the network adapter may have appeared only a moment ago
            for ($try = 1; $try -le 5; $try++) {
                try {
                    Add-WindowsCapability -Online -Name 'OpenSSH.Server~~~~0.0.1.0' | Out-Null
                    break
                } catch {
                    if ($try -eq 5) { throw "OpenSSH is not available (workers.openssh=FILE brings it): $_" }
                    Write-Warning "OpenSSH is tried again in 30 s: $_"
                    Start-Sleep -Seconds 30
                }
            }
        }
    }
    $ssh = 'C:\ProgramData\ssh'
    New-Item -ItemType Directory -Force -Path $ssh | Out-Null
    Set-AdminAcl $ssh
    if (Test-Path -Path "$ssh\logs") { Set-AdminAcl "$ssh\logs" }
    foreach ($name in 'ssh_host_ed25519_key', 'ssh_host_ed25519_key.pub', 'administrators_authorized_keys') {
        Copy-Key $name (Join-Path $ssh $name)
    }
    # In other languages, an sshd older than Windows 2025's does not find the group "administrators", so it reads the
    # profile's keys instead (PowerShell/Win32-OpenSSH#1596)
    $own = Join-Path $env:USERPROFILE '.ssh'
    New-Item -ItemType Directory -Force -Path $own | Out-Null
    Copy-Key 'administrators_authorized_keys' (Join-Path $own 'authorized_keys')
    if (-not (Get-NetFirewallRule -Name 'winlab-sshd' -ErrorAction SilentlyContinue)) {
        New-NetFirewallRule -Name 'winlab-sshd' -DisplayName 'winlab: OpenSSH' -Direction Inbound `
            -Action Allow -Protocol TCP -LocalPort 22 -Profile Any | Out-Null
    }
    Set-Service -Name 'sshd' -StartupType Automatic
    Restart-Service -Name 'sshd'
}

# Some releases also keep the password of an automatic logon among LSA's secrets. LSA removes a secret that gets no data
function Remove-LogonSecret {
    Add-Type -Namespace 'Winlab' -Name 'Lsa' -MemberDefinition @'
[StructLayout(LayoutKind.Sequential)]
struct Attributes {
    public int Length; public IntPtr Root; public IntPtr Name; public uint Flags;
    public IntPtr Descriptor; public IntPtr Quality;
}
[StructLayout(LayoutKind.Sequential)]
struct Text { public ushort Length; public ushort MaximumLength; public IntPtr Buffer; }
[DllImport("advapi32.dll")]
static extern uint LsaOpenPolicy(IntPtr system, ref Attributes attributes, uint access, out IntPtr policy);
[DllImport("advapi32.dll")]
static extern uint LsaStorePrivateData(IntPtr policy, ref Text name, IntPtr data);
[DllImport("advapi32.dll")]
static extern uint LsaClose(IntPtr policy);
public static uint Remove(string secret) {
    Attributes attributes = new Attributes();
    attributes.Length = Marshal.SizeOf(typeof(Attributes));
    IntPtr policy;
    uint status = LsaOpenPolicy(IntPtr.Zero, ref attributes, 0x20, out policy); // POLICY_CREATE_SECRET
    if (status != 0) { return status; }
    Text name = new Text();
    name.Length = (ushort)(secret.Length * 2);
    name.MaximumLength = (ushort)(secret.Length * 2 + 2);
    name.Buffer = Marshal.StringToHGlobalUni(secret);
    status = LsaStorePrivateData(policy, ref name, IntPtr.Zero);
    Marshal.FreeHGlobal(name.Buffer);
    LsaClose(policy);
    return status;
}
'@
    $status = [Winlab.Lsa]::Remove('DefaultPassword')
    # 0xC0000034: there is no such secret
    if ($status -notin 0, 3221225524) { throw ('LSA refuses with 0x{0:X8}' -f $status) }
}

try {
    New-Item -ItemType Directory -Force -Path 'C:\winlab' | Out-Null
    Set-AdminAcl 'C:\winlab' # SYSTEM runs scripts from there
    Start-Transcript -Path 'C:\winlab\bootstrap.log' -Append | Out-Null
    $node = Get-Content -Raw -Encoding UTF8 -Path (Join-Path $here 'node.json') | ConvertFrom-Json
    Write-Phase 'phase=bootstrap'

    # Reports the state of Windows after each start. The node works without it
    try {
        $beacon = 'C:\winlab\beacon.ps1'
        Copy-Item -LiteralPath (Join-Path $here 'beacon.ps1') -Destination $beacon -Force
        Set-ItemProperty -LiteralPath $beacon -Name IsReadOnly -Value $false
        $action = New-ScheduledTaskAction -Execute 'powershell.exe' `
            -Argument "-NoProfile -NonInteractive -ExecutionPolicy Bypass -File $beacon"
        Register-ScheduledTask -TaskName 'winlab-beacon' -Action $action -Force `
            -Trigger (New-ScheduledTaskTrigger -AtStartup) `
            -Principal (New-ScheduledTaskPrincipal -UserId 'SYSTEM' -LogonType ServiceAccount -RunLevel Highest) `
            -Settings (New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries) | Out-Null
    } catch {
        Write-Warning "There is no beacon: $_"
    }

    # In other languages the built-in account has another name, which winlab and ssh clients can't know
    Get-LocalUser | Where-Object { "$($_.SID)" -like 'S-1-5-*-500' -and $_.Name -ne 'Administrator' } |
        Rename-LocalUser -NewName 'Administrator'

    # WinRM and ssh log in with this password, and Windows lets passwords expire after 42 days
    Set-LocalUser -Name 'Administrator' -PasswordNeverExpires $true

    # The Public profile blocks what has no firewall rule of its own. This fails while Windows is still identifying the
    # network, which does no harm: winlab's rules apply to every profile
    try {
        Get-NetConnectionProfile | Where-Object { $_.NetworkCategory -ne 'DomainAuthenticated' } |
            Set-NetConnectionProfile -NetworkCategory Private
    } catch {
        Write-Warning "The network's profile stays as it is: $_"
    }

    # Brings additional disks online, now and when they are added later. Nothing in this script needs them
    try {
        Set-StorageSetting -NewDiskPolicy OnlineAll
        foreach ($disk in Get-Disk | Where-Object { $_.IsOffline }) {
            Set-Disk -Number $disk.Number -IsOffline $false
            Set-Disk -Number $disk.Number -IsReadOnly $false
        }
    } catch {
        Write-Warning "Further disks may stay offline: $_"
    }

    # Installs the drivers of the second folder, and those of the first one, which Setup reads but may not have
    # installed. 259: nothing to do; 3010: a restart is needed. Some releases of virtio-win have drivers that Windows
    # refuses, which is only a warning: without a network adapter the script fails below. Windows must accept the user's
    # own drivers
    foreach ($name in '$WinPEDriver$', 'drv2') {
        $drivers = Join-Path (Split-Path -Parent $here) $name
        if (-not (Test-Path -Path $drivers)) { continue }
        Get-ChildItem -Path $drivers -Recurse -Filter '*.inf' | ForEach-Object {
            $inf = $_.FullName
            try {
                Invoke-Native 'pnputil.exe' @('/add-driver', $inf, '/install') @(0, 259, 3010)
            } catch {
                if ($inf -like (Join-Path $drivers 'own-*')) { throw }
                Write-Warning "A driver is left out: $_"
            }
        }
    }

    # QEMU's guest agent and the drivers' services. The agent first, from its own package: the guest tools contain it,
    # too, but install nothing if one of their drivers is already installed. 3010: a restart is needed
    $agent = Join-Path $here 'qemu-ga-x86_64.msi'
    $tools = Join-Path $here 'virtio-win-guest-tools.exe'
    if (Test-Path -Path $agent) {
        Write-Phase 'phase=guest-agent'
        Install-Extra "The guest agent's installer ended with exit code" 'msiexec.exe' @(
            '/i', "`"$agent`"", '/qn', '/norestart', '/l*', 'C:\winlab\guest-agent.log')
    }
    if (Test-Path -Path $tools) {
        Write-Phase 'phase=guest-tools'
        Install-Extra 'The guest tools ended with exit code' $tools @(
            '/install', '/quiet', '/norestart', '/log', 'C:\winlab\guest-tools.log')
    }

    # Windows ignores DHCP's MTU (option 26). An adapter takes a while to appear after its driver was installed
    $adapters = @()
    for ($try = 0; $try -lt 60 -and $adapters.Count -eq 0; $try++) {
        if ($try -gt 0) { Start-Sleep -Seconds 1 }
        $adapters = @(Get-NetAdapter -Physical)
    }
    if ($adapters.Count -eq 0) { throw 'Windows has no network adapter: its driver is missing' }
    foreach ($adapter in $adapters) {
        Invoke-Native 'netsh.exe' @(
            'interface', 'ipv4', 'set', 'subinterface', "$($adapter.ifIndex)", "mtu=$($node.mtu)", 'store=persistent')
    }

    # Windows Update, which OpenSSH comes from, uses WinHTTP, which has its own proxy setting. A golden image has the
    # proxy of the lab that it was made for
    $mark = 'C:\winlab\winhttp.txt'
    try {
        if ($node.proxy) {
            Set-Content -Path $mark -Value $node.proxy.server -Encoding ASCII
            Invoke-Native 'netsh.exe' @(
                'winhttp', 'set', 'proxy', "proxy-server=$($node.proxy.server)", "bypass-list=$($node.proxy.bypass)")
        } elseif (Test-Path -Path $mark) {
            Invoke-Native 'netsh.exe' @('winhttp', 'reset', 'proxy')
            Remove-Item -Path $mark -Force
        }
    } catch {
        Write-Warning "The proxy of Windows Update stays as it is: $_"
    }

    # WinRM over HTTPS only, with the certificate that winlab made for this node and already trusts
    Write-Phase 'phase=winrm'
    Enable-PSRemoting -Force -SkipNetworkProfileCheck | Out-Null
    # a golden image has certificates of the machine that it was made on
    Get-ChildItem -Path 'Cert:\LocalMachine\My' | Where-Object { $_.Issuer -like 'CN=winlab *' } | Remove-Item -Force
    $secret = ConvertTo-SecureString -String $node.pfx_password -AsPlainText -Force
    $certificate = Import-PfxCertificate -FilePath (Join-Path $here 'winrm.pfx') -Password $secret `
        -CertStoreLocation 'Cert:\LocalMachine\My'
    Get-ChildItem -Path 'WSMan:\localhost\Listener' | Remove-Item -Recurse -Force
    New-Item -Path 'WSMan:\localhost\Listener' -Transport HTTPS -Address '*' `
        -CertificateThumbPrint $certificate.Thumbprint -Force | Out-Null
    if (-not (Get-NetFirewallRule -Name 'winlab-winrm' -ErrorAction SilentlyContinue)) {
        New-NetFirewallRule -Name 'winlab-winrm' -DisplayName 'winlab: WinRM over HTTPS' -Direction Inbound `
            -Action Allow -Protocol TCP -LocalPort 5986 -Profile Any | Out-Null
    }
    Invoke-Native 'sc.exe' @('config', 'WinRM', 'start=', 'auto')

    # winlab itself uses WinRM, so a failure of ssh is only a warning
    Write-Phase 'phase=ssh'
    try { Install-Sshd } catch { Write-Phase "warning=ssh: $($_.Exception.Message -replace '\s+', ' ')" }

    # remote commands of a local administrator get the full token
    Set-ItemProperty -Path 'HKLM:\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System' `
        -Name 'LocalAccountTokenFilterPolicy' -Value 1 -Type DWord

    # The user's own files, which are read-only on the CD, then scripts. If one throws, the lab is not created
    $files = Join-Path $here 'files'
    if (Test-Path -Path $files) {
        Write-Phase 'phase=files'
        Copy-Item -Path "$files\*" -Destination 'C:\' -Recurse -Force
        Get-ChildItem -Path $files -Recurse -File | ForEach-Object {
            Set-ItemProperty -Path (Join-Path 'C:\' $_.FullName.Substring($files.Length)) -Name IsReadOnly -Value $false
        }
    }
    $scripts = Join-Path $here 'scripts'
    if (Test-Path -Path $scripts) {
        Write-Phase 'phase=scripts'
        Get-ChildItem -Path $scripts -Filter '*.ps1' | Sort-Object -Property Name | ForEach-Object { & $_.FullName }
    }

    # A profile that ignores inbound rules ("block all incoming connections") cuts winlab off: at once, or when a
    # virtual switch makes Windows see a new network, which is Public
    $closed = @(Get-NetFirewallProfile -PolicyStore ActiveStore | Where-Object {
            $_.Name -ne 'Domain' -and "$($_.Enabled)" -eq 'True' -and "$($_.AllowInboundRules)" -eq 'False' })
    if ($closed.Count -gt 0) {
        throw ("the firewall takes no inbound rules in the profile $(@($closed | ForEach-Object { $_.Name }) -join ' and '): " +
            "WinRM and ssh can't be reached")
    }

    Set-Content -Path 'C:\winlab\ready.txt' -Value $node.node -Encoding ASCII
    # after this line winlab may cut the power
    try { Write-VolumeCache -DriveLetter C } catch { Write-Warning "The disk's cache can't be flushed: $_" }
    Write-Phase 'phase=ready'
    # reports the state of Windows even if winlab can't log in
    try { Start-ScheduledTask -TaskName 'winlab-beacon' } catch { Write-Warning "The beacon does not start: $_" }
} catch {
    Write-Phase "error=bootstrap: $($_.Exception.Message -replace '\s+', ' ')"
    "$_" | Out-Host # the transcript is closed before PowerShell shows the error
    Write-Dump
    throw
} finally {
    # In any case, the password must not stay. Automatic logon ends here: Windows logs on once more than the answer file
    # says, and Setup leaves copies of the answer file
    $winlogon = 'HKLM:\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon'
    Set-ItemProperty -Path $winlogon -Name 'AutoAdminLogon' -Value '0' -ErrorAction SilentlyContinue
    Set-ItemProperty -Path $winlogon -Name 'AutoLogonCount' -Value 0 -Type DWord -ErrorAction SilentlyContinue
    Remove-ItemProperty -Path $winlogon -Name 'DefaultPassword' -ErrorAction SilentlyContinue
    Remove-Item -Force -ErrorAction SilentlyContinue `
        -Path 'C:\Windows\Panther\unattend.xml', 'C:\Windows\Panther\unattend-original.xml'
    # throws if Start-Transcript failed, despite -ErrorAction, and would then replace the first error
    try { Stop-Transcript | Out-Null } catch { $null = $_ }
    try { Remove-LogonSecret } catch { Write-Warning "LSA may still know the password of the automatic logon: $_" }
    # the session of the automatic logon would prevent restarts (error 1191)
    & logoff.exe
}
